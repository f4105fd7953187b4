"""Two loaded models and the state that lasts from answer to answer: caches, index, what the controller has
learned.

Runs in this process. Front ends use it through `engine.client`, which puts it into a process of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localspec.engine import inspection
from localspec.engine.build import engine_build
from localspec.engine.control.controller import Choice, Controller
from localspec.engine.control.profile import profile_key
from localspec.engine.control.tuning import Tuning
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter, common_length
from localspec.engine.generate import Drafters, Generation, Limits
from localspec.engine.grammar.masking import plain_controller
from localspec.engine.inspection import Question
from localspec.engine.llama.context import Context, ContextSettings
from localspec.engine.llama.grammar import LlamaGrammar
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.prefix_cache import WORTH_TOKENS, Kept, PrefixCache
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
from localspec.ground.errors import EngineError, InvalidInput


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One loaded model."""

    path: Path
    description: str
    """Architecture, size and format in libllama's words."""
    parameters: int
    size_bytes: int
    """Of the weights."""
    vocabulary: int
    """Rows, padding included."""
    trained_context: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is loaded, and how."""

    target: ModelFacts
    draft: ModelFacts | None
    context: int
    """Tokens."""
    threads: int
    build: str
    """Version of llama-cpp-python."""
    has_template: bool
    load_seconds: float
    speculation_off: str
    """Why no drafter can be used with this target; "" when some can."""


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
        self._drafter: ModelDrafter | None = None
        self._generation: Generation | None = None
        self._held: list[int] = []
        self._prefixes = PrefixCache(settings.prefix_cache_bytes)
        self._lookup = LookupDrafter()
        self._target_weights = self._weights(settings.target, "target", settings.gpu_layers)
        try:
            self._open_target()
            self._tuning = Tuning(self._target, min(AUTO_DRAFT_LENGTH, settings.max_draft_length))
            if settings.draft is not None:
                self.load_draft(settings.draft, settings.masked_ids, settings.shared_rows, settings.expectation)
            else:
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
        speculation = SpeculationSettings("none") if request.grammar else request.speculation
        controller = plain_controller() if request.grammar else self._controller(speculation)
        self._check_bias(request.sampler)
        prompt = self.encode(request)
        vocabulary = self._target_weights.vocabulary
        grammar = LlamaGrammar(vocabulary, request.grammar) if request.grammar else None
        ends = vocabulary.end_tokens if request.min_tokens or self._drafter is not None else frozenset()
        if not request.keep_cache:
            self._forget()
        self._recall(prompt)
        if self._drafter is not None:
            self._drafter.configure(request.sampler, ends)
        generation = self._generation = Generation(
            self._target,
            vocabulary,
            self._usable_drafters(speculation),
            controller,
            request.sampler,
            Limits(request.max_tokens, request.min_tokens, request.stop),
            prompt,
            self._held,
            vocabulary.suppressed,
            ends,
            costs=self._tuning.costs,
            grammar=grammar,
        )
        try:
            yield from generation.run()
        finally:
            self._held = generation.held()
            self._generation = None
            self._tuning.save()
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
                if self._drafter is None:
                    raise EngineError("no draft model is loaded")
                return inspection.propose(self._drafter, question, vocabulary.end_tokens)

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
        """Put another draft model beside the target, whose cache stays. The former one is freed first."""
        self.unload_draft()
        settings = self._settings
        weights = self._draft_weights = self._weights(path, "draft", settings.draft_gpu_layers)
        if weights.is_recurrent:
            self.unload_draft()
            raise EngineError(
                f"{path.name} cannot be a draft: its memory cannot be rewound", "Choose another draft"
            )
        tokens = min(settings.draft_context or self._target.capacity, self._target.capacity)
        self._draft_context = self._context(weights, tokens, rows=1)
        rows = min(weights.vocabulary.size, self._target.n_vocab, shared_rows or weights.vocabulary.size)
        self._drafter = ModelDrafter(self._draft_context, masked_ids, rows)
        self._measure(expectation)

    def unload_draft(self) -> None:
        """Free the draft model, if there is one; kept conversations go with it."""
        self._prefixes.clear()  # what is kept belongs to two models
        self._drafter = None
        if self._draft_context is not None:
            self._draft_context.close()
        if self._draft_weights is not None:
            self._draft_weights.close()
        self._draft_context = self._draft_weights = None

    def close(self) -> None:
        """Free everything: contexts before their weights, the draft before the target."""
        self.unload_draft()
        if hasattr(self, "_target"):
            self._target.close()
        self._target_weights.close()

    # --- parts ---------------------------------------------------------------------------------------

    def _open_target(self) -> None:
        weights, settings = self._target_weights, self._settings
        if not weights.can_generate:
            raise EngineError(f"{settings.target.name} is not a text generator that localspec can run")
        trained = weights.trained_context or DEFAULT_CONTEXT
        tokens = settings.context or min(DEFAULT_CONTEXT, trained)
        self._target = self._context(weights, tokens, rows=settings.max_draft_length + 1)

    def _weights(self, path: Path, part: Literal["target", "draft"], gpu_layers: int) -> Weights:
        placement = Placement(gpu_layers, self._settings.split_mode, self._settings.main_gpu)
        return Weights(
            path, placement, lambda fraction: self._report(LoadProgress(part, fraction)), self._cancel
        )

    def _context(self, weights: Weights, tokens: int, rows: int) -> Context:
        settings = self._settings
        context = Context(
            weights,
            ContextSettings(tokens, rows, self._threads, settings.cache_type, settings.flash_attention),
            self._cancel,
        )
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
        self._tuning.measure(self._draft_context, token, settings.profiles, key, expectation)

    def _drafter_named(self, name: str) -> Choice | Literal["auto"]:
        """What `name` means here. Raises InvalidInput for an order that cannot be obeyed."""
        off = self._speculation_off()
        if name == "none" or (off and name == "auto"):
            return "none"
        if off:
            raise InvalidInput(f"--drafter {name} cannot be used: {off}", "Leave it out, or use --no-draft")
        if name == "model" and self._drafter is None:
            raise InvalidInput(
                "--drafter model needs a draft model", "Add --draft FILE, or use --drafter lookup"
            )
        return "model" if name == "model" else "lookup" if name == "lookup" else "auto"

    def _usable_drafters(self, speculation: SpeculationSettings) -> Drafters:
        """Only those that may be used are kept up to date: a prefill of an unused draft model is time
        lost."""
        if speculation.drafter == "none" or speculation.length == 0 or self._speculation_off():
            return Drafters()
        return Drafters(
            self._drafter if speculation.drafter != "lookup" else None,
            self._lookup if speculation.drafter != "model" else None,
        )

    def _speculation_off(self) -> str:
        return "this model's memory cannot be rewound" if self._target.max_rewind == 0 else ""

    def _recall(self, prompt: list[int]) -> None:
        """Swap conversations: keep the one in the caches, put back the one that `prompt` continues."""
        if self._target.max_rewind is not None:
            return  # such a memory can hardly go back to where the two part
        shared = common_length(self._held, prompt)
        found = self._prefixes.find(prompt, shared)
        if len(self._held) - shared >= WORTH_TOKENS:
            with contextlib.suppress(EngineError):  # then it will have to be read again
                self._prefixes.keep(self._snapshot())
        if found is not None:
            self._put_back(found)

    def _snapshot(self) -> Kept:
        tokens, target = tuple(self._held), self._target.save()
        if self._drafter is None or self._draft_context is None:
            return Kept(tokens, target)
        return Kept(tokens, target, self._drafter.held(), self._draft_context.save())

    def _put_back(self, kept: Kept) -> None:
        self._held = list(kept.tokens) if self._target.restore(kept.target, kept.tokens) else []
        if self._drafter is not None and self._draft_context is not None and kept.draft is not None:
            done = self._draft_context.restore(kept.draft, kept.draft_tokens)
            self._drafter.holds(kept.draft_tokens if done else ())

    def _forget(self) -> None:
        self._target.rewind(0)
        self._held = []
        if self._draft_context is not None and self._drafter is not None:
            self._drafter.forget()


def _facts(weights: Weights) -> ModelFacts:
    return ModelFacts(
        weights.path, weights.description, weights.parameters, weights.size_bytes, weights.vocabulary.size,
        weights.trained_context,
    )  # fmt: skip
