"""The whole pipeline, one line a step: a name in, two loaded and checked models out.

with open_session("target.gguf", LoadOptions(draft="draft.gguf")) as session:
    for token in session.stream("Why is the sky blue?"):
        print(token.text, end="")
    print(session.stats.speedup)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import localspec.session.open_models as open_models
from localspec.engine.settings import (
    AUTO_DRAFT_LENGTH,
    Expectation,
    GenerationRequest,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.engine.templates.chat_template import Message
from localspec.ground import logs
from localspec.ground.errors import DoesNotFit, IncompatiblePair, LocalspecError
from localspec.ground.locations import state_folder
from localspec.ground.machine import physical_cores

if TYPE_CHECKING:
    from localspec.engine.info import EngineInfo
    from localspec.engine.process.handle import EngineHandle
    from localspec.engine.records import Event, Finished, GenerationStats, LoadProgress, Token
    from localspec.pairs.compat import Verdict
    from localspec.pairs.gguf.model_info import ModelInfo
    from localspec.pairs.memory.fit_records import FitPlan
    from localspec.pairs.names.resolve import PairFiles


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a person may say about loading a pair; None = decided here."""

    draft: str | None = None
    """A file or name; None and `auto` = the pair's own, `none` = no draft model."""
    context: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    split_mode: Literal["none", "layer", "row"] = "layer"
    main_gpu: int = 0
    cache_type: str | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    draft_length: int | None = None
    """A fixed draft length that must be possible; None = what is chosen automatically."""
    force: bool = False
    """Load a pair that a check only advises against."""
    offline: bool = False
    cache_folder: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the engine would refuse, before any file is looked at."""
        LoadSettings(
            Path(),
            context=self.context,
            threads=self.threads,
            cache_type=self.cache_type or "f16",
            max_draft_length=self.draft_length or 0,
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pair that was found, checked and planned, ready to load."""

    files: PairFiles
    verdict: Verdict | None
    """None without a draft model."""
    placed: FitPlan
    settings: LoadSettings


class Session:
    """A loaded pair. One answer at a time."""

    def __init__(
        self,
        files: PairFiles,
        verdict: Verdict | None,
        placed: FitPlan | None,
        client: EngineHandle,
        settings: LoadSettings,
    ) -> None:
        self.files = files
        self.placed = placed
        """Where everything went, and the concessions that were made for it; None in a server, which keeps that to
        itself."""
        self.verdict = verdict
        """Of the pair; None without a draft model."""
        self.client = client
        self.settings = settings
        self.also_open = ""
        """Which other processes have the target open, in one sentence; "" = none."""
        self.finished: Finished | None = None
        """The end of the last answer."""

    @property
    def info(self) -> EngineInfo:
        """What the engine says of the loaded models and of its build."""
        info = self.client.info
        assert info is not None
        return info

    @property
    def concessions(self) -> list[str]:
        """What is not as asked so that everything fits, one sentence each."""
        if self.placed is None:
            return []
        steps = [f"{step.name}: {step.detail}, so that everything fits" for step in self.placed.steps]
        return [*steps, *self.placed.notes]

    @property
    def notes(self) -> list[str]:
        """What a person should know before the first answer, one sentence each."""
        return [*self.concessions, *filter(None, [self.also_open])]

    @property
    def stats(self) -> GenerationStats | None:
        """Of the last answer."""
        return self.finished.stats if self.finished is not None else None

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Every event of one answer."""
        from localspec.engine.records import Finished

        self.finished = None
        for event in self.client.generate(request):
            if isinstance(event, Finished):
                self.finished = event
            yield event

    def stream(
        self,
        prompt: str | Sequence[Message],
        sampler: SamplerSettings = SamplerSettings(),  # noqa: B008 - frozen
        speculation: SpeculationSettings = SpeculationSettings(),  # noqa: B008 - frozen
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[Token]:
        """Tokens of one answer as their text settles. A plain string is one message of a user."""
        from localspec.engine.records import Finished, RoundFinished

        messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
        request = GenerationRequest(messages, None, sampler, speculation, max_tokens, stop=tuple(stop))
        for event in self.generate(request):
            if isinstance(event, RoundFinished):
                yield from event.tokens
            elif isinstance(event, Finished):
                yield from event.tail

    def complete(self, prompt: str | Sequence[Message], **options: object) -> str:
        """The text of one answer; options as for `stream`."""
        return "".join(token.text for token in self.stream(prompt, **options))  # type: ignore[arg-type]

    def swap_draft(
        self, draft: str, options: LoadOptions, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> None:
        """Another draft model beside the target, whose cache stays; `none` unloads it.

        Nothing changes when the check says no.
        """
        options = replace(options, draft=draft)
        files = find(str(self.files.target), options)
        verdict = check(files, *read(files), options)
        settings = replace(
            self.settings,
            draft=files.draft,
            masked_ids=verdict.masked_ids if verdict is not None else (),
            shared_rows=verdict.shared_rows if verdict is not None else None,
        )
        settings = replace(settings, expectation=expectation(settings))
        self.client.load_draft(
            settings.draft, settings.masked_ids, settings.shared_rows, on_progress, settings.expectation
        )
        self.files, self.verdict = replace(files, name=self.files.name), verdict
        self.settings = settings

    def close(self) -> None:
        """End the engine's process."""
        self.client.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    pair: str,
    options: LoadOptions = LoadOptions(),
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_client: Callable[[EngineHandle], None] | None = None,
) -> Session:
    """Find, check and load a pair, or reach the server whose address `pair` is.

    Raises the errors of `localspec.ground.errors`; nothing stays loaded then.

    `on_client` gets the engine's handle before the load begins: what a caller needs to stop it.
    """
    from localspec.engine.process.client import EngineClient
    from localspec.remote import is_url, open_remote

    if is_url(pair):
        return open_remote(pair, on_client)
    prepared = prepare(pair, options)
    client = EngineClient(logs.folder())
    client.on_close = open_models.HeldClaim(prepared.files.target, prepared.placed.used).close
    also_open = open_models.sentence(open_models.others(prepared.files.target))
    if on_client is not None:
        on_client(client)
    try:
        client.load(prepared.settings, physical_cores(), on_progress)
    except BaseException:
        client.close()
        raise
    session = Session(prepared.files, prepared.verdict, prepared.placed, client, prepared.settings)
    session.also_open = also_open
    return session


def prepare(pair: str, options: LoadOptions) -> Prepared:
    """Everything up to loading. Raises UnknownName, UnreadableFile, IncompatiblePair, DoesNotFit."""
    files = find(pair, options)
    target, draft = read(files)
    verdict = check(files, target, draft, options)
    placed = fit(target, draft, options)
    settings = settings_for(files, verdict, placed, options)
    return Prepared(files, verdict, placed, replace(settings, expectation=expectation(settings)))


def find(pair: str, options: LoadOptions) -> PairFiles:
    """Which two files. Raises UnknownName, UnreadableFile."""
    from localspec.pairs.names.resolve import find_pair

    return find_pair(
        pair, options.draft, cache_folder=Path(options.cache_folder) if options.cache_folder else None
    )


def read(files: PairFiles) -> tuple[ModelInfo, ModelInfo | None]:
    """The headers of the target and of the draft. Raises UnreadableFile."""
    from localspec.pairs.gguf.split_files import read_model

    return read_model(files.target_files), read_model(files.draft_files) if files.draft_files else None


def check(
    files: PairFiles, target: ModelInfo, draft: ModelInfo | None, options: LoadOptions
) -> Verdict | None:
    """May this draft serve this target? Raises IncompatiblePair with the reasons."""
    from localspec.pairs import compat

    if draft is None or files.draft is None:
        return None
    verdict = compat.check(target, draft)
    reason = verdict.worst()
    if reason is not None and (verdict.kind == "refused" or (verdict.stopped and not options.force)):
        raise IncompatiblePair(
            f"{files.draft.name} cannot draft for {files.target.name}: {reason.detail}",
            f"See: localspec check {files.target} {files.draft}",
        )
    return verdict


def fit(target: ModelInfo, draft: ModelInfo | None, options: LoadOptions) -> FitPlan:
    """Where everything goes. Raises DoesNotFit with what is lacking, unless told to try anyway."""
    from localspec.pairs.memory.fit_records import Wish, lacking
    from localspec.session.memory_plan import plan_pair, this_machine

    wish = Wish(
        context=options.context,
        cache_type=options.cache_type,
        draft_length=_longest_draft(options),
        gpu_layers=options.gpu_layers,
        draft_gpu_layers=options.draft_gpu_layers,
    )
    # By the headers alone: libllama's own sizes would cost a process more, and differ by a few per cent.
    chosen = plan_pair(target, draft, this_machine(), wish, local=False)
    if not chosen.fits and not options.force:
        elsewhere = open_models.sentence(open_models.others(Path(target.source)))
        raise DoesNotFit(
            "; ".join(filter(None, [lacking(chosen), elsewhere])),
            "See: localspec fit. Take a smaller model, --ctx or quantization, or --force",
        )
    return chosen


def settings_for(
    files: PairFiles, verdict: Verdict | None, placed: FitPlan, options: LoadOptions
) -> LoadSettings:
    """What the engine is told."""
    from localspec.session.memory_plan import device_name

    settings = LoadSettings(
        target=files.target,
        draft=files.draft if placed.draft is not None else None,
        context=placed.context,
        threads=options.threads,
        gpu_layers=placed.target.gpu_layers,
        draft_gpu_layers=placed.draft.gpu_layers if placed.draft is not None else 0,
        split_mode=options.split_mode,
        main_gpu=options.main_gpu,
        cache_type=placed.cache_type,
        flash_attention=options.flash_attention,
        max_draft_length=_longest_draft(options),
        profiles=state_folder() / "profiles",
        device=device_name(placed),
    )
    if verdict is not None:
        settings = replace(settings, masked_ids=verdict.masked_ids, shared_rows=verdict.shared_rows)
    return settings


def expectation(settings: LoadSettings) -> Expectation | None:
    """What a bench of these files found on this device and build, if it says whether drafts pay."""
    from localspec.session import verdicts

    known = verdicts.read(settings.target, settings.draft, settings.device)
    return known.expectation(verdicts.conditions(settings)) if known is not None else None


def _longest_draft(options: LoadOptions) -> int:
    return max(AUTO_DRAFT_LENGTH, options.draft_length or 0)


__all__ = [
    "LoadOptions",
    "LocalspecError",
    "Message",
    "SamplerSettings",
    "Session",
    "SpeculationSettings",
    "open_session",
]
