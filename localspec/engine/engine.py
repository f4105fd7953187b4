"""Two loaded models and the state that lasts from answer to answer: caches, index, what the controller has
learned.

Runs in this process. Front ends use it through `engine.process.client`, which puts it into a process of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

from localspec.engine import inspection
from localspec.engine.build import engine_build
from localspec.engine.control.controller import Controller
from localspec.engine.control.profile import profile_key
from localspec.engine.control.tuning import Tuning
from localspec.engine.drafters import table
from localspec.engine.drafters.protocol import Drafter, Parts
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.grammar.masking import plain_controller
from localspec.engine.info import EngineInfo, ModelFacts
from localspec.engine.inspection import Question
from localspec.engine.last_text import NO_TEXT, LastText
from localspec.engine.llama.context import Context, ContextSettings
from localspec.engine.llama.grammar import LlamaGrammar
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.prefix_cache import PrefixCache
from localspec.engine.process.cancel import CancelFlag
from localspec.engine.records import Event, LoadProgress
from localspec.engine.settings import (
    AUTO_DRAFT_LENGTH,
    DEFAULT_CONTEXT,
    Expectation,
    GenerationRequest,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.engine.templates.chat_template import ChatTemplate, encode
from localspec.ground.errors import Cancelled, EngineError, InvalidInput, NotFinite


class Engine:
    """One target, perhaps one draft model, one answer at a time."""

    def __init__(
        self,
        settings: LoadSettings,
        threads: int,
        on_progress: Callable[[LoadProgress], None] | None = None,
        cancel: CancelFlag | None = None,
    ) -> None:
        """Load. Raises UnreadableFile, EngineError, Cancelled; what was loaded by then is freed."""
        start = time.perf_counter()
        self._settings = settings
        self._threads = settings.threads or threads
        self._cancel = cancel or CancelFlag()
        self._report = on_progress or (lambda progress: None)
        self._draft_weights: Weights | None = None
        self._draft_context: Context | None = None
        self._drafters: dict[str, Drafter] = {}
        self._generation: Generation | None = None
        self._text = NO_TEXT
        self._familiar: list[object] = []  # controllers and drafters that followed this text
        self._prefixes = PrefixCache(settings.prefix_cache_bytes)
        self._target_weights = self._weights(settings.target, "target", settings.gpu_layers)
        try:
            self._open_target()
            self._tuning = Tuning(self._target, min(AUTO_DRAFT_LENGTH, settings.max_draft_length))
            if settings.draft is not None:
                self.load_draft(settings.draft, settings.masked_ids, settings.shared_rows, settings.expectation)
            else:
                self._open_drafters()
                self._measure(settings.expectation)
        except BaseException:
            self.close()
            raise
        self._load_seconds = time.perf_counter() - start

    @property
    def info(self) -> EngineInfo:
        """What is loaded now, and how."""
        weights = self._target_weights
        return EngineInfo(
            target=_facts(weights),
            draft=_facts(self._draft_weights) if self._draft_weights is not None else None,
            context=self._target.capacity,
            threads=self._threads,
            build=engine_build(),
            has_template=weights.chat_template() is not None,
            load_seconds=self._load_seconds,
            speculation_off=self._speculation_off(),
            drafters=() if self._speculation_off() else tuple(self._drafters),
        )

    def encode(self, request: GenerationRequest) -> list[int]:
        """Token ids of the request's prompt. A raw prompt may write control tokens; a person's message
        cannot."""
        vocabulary = self._target_weights.vocabulary
        if request.prompt is not None:
            return vocabulary.tokenize(request.prompt, special=True, add_bos=vocabulary.adds_bos)
        segments = self._template(request.template).render(
            request.messages, True, **dict(request.template_arguments)
        )
        ids = encode(
            segments, lambda text, special: vocabulary.tokenize(text, special=special), vocabulary.is_control
        )
        if vocabulary.adds_bos and vocabulary.bos is not None and ids[:1] != [vocabulary.bos]:
            ids.insert(0, vocabulary.bos)
        return ids

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Answer. The last event is `Finished`, also after a cancel; errors are raised."""
        if self._generation is not None:
            raise EngineError("an answer is already being made", "Wait for it, or cancel it")
        speculation = SpeculationSettings(table.NONE) if request.grammar else request.speculation
        controller = plain_controller() if request.grammar else self._controller(speculation)
        self._check_bias(request.sampler)
        prompt = self.encode(request)
        vocabulary = self._target_weights.vocabulary
        related = request.keep_cache and self._text.goes_on_in(request, prompt)
        if not related:
            self._familiar.clear()
        if request.keep_cache:
            self._recall(prompt)
        else:
            self._forget()
        drafters = self._usable_drafters(speculation)
        # Asking every id whether it ends an answer takes some 40 ms the first time.
        ends = vocabulary.end_tokens if request.min_tokens or drafters else frozenset[int]()
        grammar = LlamaGrammar(vocabulary, request.grammar) if request.grammar else None
        try:
            generation = self._generation = Generation(
                self._target,
                vocabulary,
                drafters,
                controller,
                request.sampler,
                Limits(request.max_tokens, request.min_tokens, request.stop),
                prompt,
                related=related,
                familiar=self._familiar,
                suppressed=vocabulary.suppressed,
                ends=ends,
                costs=self._tuning.costs,
                grammar=grammar,
            )
            yield from drive(generation, self._target)
        except NotFinite:
            self._forget()  # no later answer may go on from such a cache, or from one that it was made of
            self._prefixes.clear()
            raise
        finally:
            if self._generation is not None and request.max_tokens != 0:
                self._text = LastText(request.messages, self._generation.tokens, len(prompt))
            self._generation = None
            self._tuning.save(self._drafters)
            if grammar is not None:
                grammar.close()

    def inspect(self, question: Question) -> Any:
        """Answer one question of `engine.inspection`. Raises EngineError, InvalidInput."""
        if self._generation is not None:
            raise EngineError("an answer is being made", "Ask when it is done")
        self._forget()
        vocabulary = self._target_weights.vocabulary
        match question:
            case inspection.Encode(request):
                return tuple(self.encode(request))
            case inspection.Facts():
                return inspection.VocabularyFacts(
                    tuple(sorted(vocabulary.end_tokens)), tuple(vocabulary.suppressed)
                )
            case inspection.Passes(part):
                context = self._target if part == "target" else self._draft_context
                if context is None:
                    raise EngineError("no draft model is loaded")
                return inspection.passes(context, question)
            case inspection.Propose():
                drafter = self._drafters.get(question.drafter)
                if drafter is None:
                    raise EngineError("no draft model is loaded")
                return inspection.propose(drafter, question, vocabulary.end_tokens)

    def change(self, speculation: SpeculationSettings | None, sampler: SamplerSettings | None) -> None:
        """From the next round of the answer being made on; may be called from another thread."""
        generation = self._generation
        if sampler is not None:
            self._check_bias(sampler)
        if generation is not None:
            controller = self._controller(speculation) if speculation is not None else None
            drafters = self._usable_drafters(speculation) if speculation is not None else None
            generation.change(controller, drafters, sampler)

    def load_draft(
        self,
        path: Path,
        masked_ids: tuple[int, ...] = (),
        shared_rows: int | None = None,
        expectation: Expectation | None = None,
    ) -> None:
        """Put another draft model beside the target, whose cache stays. Where it cannot be loaded, the former one stays
        as it was. Both are in memory for a moment."""
        self._check_idle()
        former = (self._draft_weights, self._draft_context, self._drafters, self._tuning)
        weights = self._weights(path, "draft", self._settings.draft_gpu_layers)
        context = None
        try:
            context = self._open_draft(weights)
            self._draft_weights, self._draft_context, self._tuning = weights, context, copy(self._tuning)
            self._drafters = self._built_drafters(masked_ids, shared_rows)
            self._measure(expectation)
        except BaseException:
            if self._drafters is not former[2]:
                _close_drafters(self._drafters)
            self._draft_weights, self._draft_context, self._drafters, self._tuning = former
            _free(context, weights)
            raise
        self._prefixes.clear()  # what is kept belongs to two models
        _close_drafters(former[2])
        _free(former[1], former[0])

    def unload_draft(self) -> None:
        """Free the draft model, if there is one; kept conversations and what was expected of it go with it."""
        self._check_idle()
        self._free_draft()
        self._open_drafters()
        with contextlib.suppress(Cancelled):
            self._measure(None)

    def close(self) -> None:
        """Free everything: contexts before their weights, the draft before the target."""
        _close_drafters(self._drafters)
        self._drafters = {}
        self._free_draft()
        if hasattr(self, "_target"):
            self._target.close()
        self._target_weights.close()

    # --- parts ---------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        """Raises EngineError while an answer, which uses the draft model, is being made."""
        if self._generation is not None:
            raise EngineError("an answer is being made", "Change the draft model when it is done")

    def _open_target(self) -> None:
        weights, settings = self._target_weights, self._settings
        if not weights.can_generate:
            raise EngineError(f"{settings.target.name} is not a text generator that localspec can run")
        trained = weights.trained_context or DEFAULT_CONTEXT
        tokens = settings.context or min(DEFAULT_CONTEXT, trained)
        wanted = table.wants(settings.draft)
        self._target = self._context(weights, tokens, settings.max_draft_length + 1, wanted.leaves)

    def _open_draft(self, weights: Weights) -> Context:
        if weights.is_recurrent:
            raise EngineError(
                f"{weights.path.name} cannot be a draft: its memory cannot be rewound", "Choose another draft"
            )
        tokens = min(self._settings.draft_context or self._target.capacity, self._target.capacity)
        return self._context(weights, tokens, rows=1)

    def _open_drafters(self) -> None:
        """Put those that the present models allow in place of the former ones."""
        _close_drafters(self._drafters)
        self._drafters = self._built_drafters((), None)

    def _built_drafters(self, masked_ids: tuple[int, ...], shared_rows: int | None) -> dict[str, Drafter]:
        """Every drafter that the present models allow."""
        weights = self._draft_weights
        vocabulary = weights.vocabulary if weights is not None else self._target_weights.vocabulary
        return table.open_drafters(
            Parts(
                self._target,
                self._target_weights.vocabulary,
                self._tuning.costs,
                self._tuning.longest,
                self._draft_context,
                weights.path if weights is not None else None,
                masked_ids,
                shared_rows,
                vocabulary.bos or 0,
            )
        )

    def _free_draft(self) -> None:
        self._prefixes.clear()
        _free(self._draft_context, self._draft_weights)
        self._draft_context = self._draft_weights = None

    def _weights(self, path: Path, part: Literal["target", "draft"], gpu_layers: int) -> Weights:
        placement = Placement(gpu_layers, self._settings.split_mode, self._settings.main_gpu)
        return Weights(
            path, placement, lambda fraction: self._report(LoadProgress(part, fraction)), self._cancel
        )

    def _context(self, weights: Weights, tokens: int, rows: int, leaves: int = 1) -> Context:
        settings = self._settings
        wanted = ContextSettings(
            tokens,
            rows,
            self._threads,
            settings.cache_type,
            settings.flash_attention,
            leaves=leaves,
            swa_full=settings.swa_full,
        )
        context = Context(weights, wanted, self._cancel)
        context.warm_up()
        return context

    def _template(self, instead: str | None) -> ChatTemplate:
        vocabulary = self._target_weights.vocabulary
        source = instead or self._target_weights.chat_template()
        if source is None:
            raise InvalidInput(
                f"{self._target_weights.path.name} has no chat template", "Send the prompt as it is: --raw"
            )
        bos, eos = (
            vocabulary.token_text(token) if token is not None else ""
            for token in (vocabulary.bos, vocabulary.eos)
        )
        return ChatTemplate(source, bos, eos)

    def _check_bias(self, sampler: SamplerSettings) -> None:
        """Raises InvalidInput for a bias on an id that does not exist: it would go unheeded."""
        size = self._target_weights.vocabulary.size
        wrong = next((token for token, _ in sampler.logit_bias if not 0 <= token < size), None)
        if wrong is not None:
            raise InvalidInput(f"there is no token {wrong} to bias: ids are 0 to {size - 1}", "Choose another id")

    def _controller(self, speculation: SpeculationSettings) -> Controller:
        return self._tuning.controller(self._drafter_named(speculation.drafter), speculation.length)

    def _measure(self, expectation: Expectation | None) -> None:
        """Take this pair's times from disk, or measure them."""
        settings, draft = self._settings, self._draft_weights
        files = (settings.target, draft.path if draft is not None else None)
        key = profile_key(files, settings, self._threads, engine_build())
        token = self._target_weights.vocabulary.bos or 0
        self._tuning.measure(self._drafters, token, settings.profiles, key, expectation)

    def _drafter_named(self, name: str) -> str:
        """What `name` means here. Raises InvalidInput for an order that cannot be obeyed."""
        off = self._speculation_off()
        if name == table.NONE or (off and name == table.AUTO):
            return table.NONE
        if off:
            raise InvalidInput(f"--drafter {name} cannot be used: {off}", "Leave it out, or use --no-draft")
        if name != table.AUTO and name not in self._drafters:
            raise InvalidInput(
                f"--drafter {name} needs a draft {'model' if name == 'model' else 'file of its kind'}",
                f"Add --draft FILE, or use --drafter {next(iter(self._drafters), table.NONE)}",
            )
        return name

    def _usable_drafters(self, speculation: SpeculationSettings) -> list[Drafter]:
        """Only those that may be used are kept up to date: a prefill of an unused draft model is time
        lost."""
        if speculation.drafter == table.NONE or speculation.length == 0 or self._speculation_off():
            return []
        chosen = speculation.drafter
        return [drafter for name, drafter in self._drafters.items() if chosen in (table.AUTO, name)]

    def _speculation_off(self) -> str:
        return "this model's memory cannot be rewound" if self._target.max_rewind == 0 else ""

    def _recall(self, prompt: Sequence[int]) -> None:
        """Swap conversations: keep the one in the caches, put back the one that `prompt` continues."""
        if self._target.max_rewind is None:  # other memories can hardly go back to where the two part
            self._prefixes.swap(prompt, self._target, self._drafters.values())

    def _forget(self) -> None:
        self._target.rewind(0)
        for drafter in self._drafters.values():
            drafter.forget()


def _close_drafters(drafters: Mapping[str, Drafter]) -> None:
    for drafter in drafters.values():
        drafter.close()


def _free(context: Context | None, weights: Weights | None) -> None:
    """A context before its weights."""
    if context is not None:
        context.close()
    if weights is not None:
        weights.close()


def _facts(weights: Weights) -> ModelFacts:
    return ModelFacts(
        weights.path, weights.description, weights.parameters, weights.size_bytes, weights.vocabulary.size,
        weights.trained_context,
    )  # fmt: skip
