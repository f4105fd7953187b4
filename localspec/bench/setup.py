"""From what a person typed to a run that can be executed: files, checks, arms, engines, plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.bench.endpoint import Endpoint
from localspec.bench.local_engine import DraftFile, LocalEngine
from localspec.bench.options import BenchOptions
from localspec.bench.peers import LlamaServer, SpeculativeSimple
from localspec.bench.plan import SWEEP_LENGTHS, Speeds, make_plan
from localspec.bench.prompts import load_prompts
from localspec.bench.records import PLAIN, Arm, BenchRun, Cell, Measurement, Prompt
from localspec.bench.runner import BenchEngine
from localspec.engine.settings import DEFAULT_CONTEXT, LoadSettings
from localspec.ground import logs
from localspec.ground.errors import EngineError, InvalidInput

if TYPE_CHECKING:
    from localspec.pairs.names.resolve import PairFiles


_RAW_LENGTH = 4
"""Draft length at which acceptance with and without the chat template is compared."""
_ROOM = 1536
"""Tokens for a question and its answer beside the text before them."""


@dataclass(frozen=True, slots=True)
class BenchPair:
    """The pair that localspec's own arms run."""

    files: PairFiles
    settings: LoadSettings
    drafts: Mapping[str, DraftFile]
    """By the name that arms call them; "" is the pair's own."""
    has_template: bool = True
    """Whether the target's prompts go through a chat template."""


def find_pair(options: BenchOptions) -> BenchPair | None:
    """Find and check the pair and every other draft; None when only addresses are measured."""
    from localspec.session.open import prepare, read

    if options.pair is None:
        return None
    load = replace(options.load, context=_context(options))
    own = prepare(options.pair, load)
    settings = own.settings
    longest = max(_sweep_lengths(options), default=0)
    # The arms are measured without knowing what an earlier bench found: a verdict must not confirm itself.
    settings = replace(
        settings, max_draft_length=max(settings.max_draft_length, longest), expectation=None
    )
    drafts = {}
    if settings.draft is not None:
        drafts[""] = DraftFile(settings.draft, settings.masked_ids, settings.shared_rows)
    for name in options.drafts:
        found = prepare(options.pair, replace(load, draft=name)).settings
        if found.draft is None:
            raise InvalidInput(f"no draft model is meant by {name!r}", "Name files or models: --drafts a,b")
        drafts[name] = DraftFile(found.draft, found.masked_ids, found.shared_rows)
    return BenchPair(own.files, settings, drafts, bool(read(own.files)[0].chat_template))


def _context(options: BenchOptions) -> int | None:
    """Room for the deepest question; the usual context where that is enough."""
    needed = max(options.depths) + _ROOM
    given = options.load.context
    if given is None:
        return needed if needed > DEFAULT_CONTEXT else None
    if max(options.depths) and needed > given:
        raise InvalidInput(
            f"a depth of {max(options.depths)} needs {needed} tokens of context, not {given}", "Use a larger --ctx"
        )
    return given


def arms_of(options: BenchOptions, pair: BenchPair | None) -> tuple[Arm, ...]:
    """The arms of the main comparison, the reference first. With addresses only, the first one is the reference."""
    arms: list[Arm] = []
    if pair is not None:
        arms = [Arm(PLAIN, "none"), Arm("auto")]
        arms += [Arm(drafter, drafter) for drafter in options.drafters]
        arms += [Arm(f"auto+{name}", "auto", None, name) for name in options.drafts]
        arms += [Arm(name, "none", peer=name) for name, _ in options.peers]
    for place, url in enumerate(options.urls):
        label, equals, address = url.partition("=")
        if not equals or "/" in label:
            label, address = url, url
        if pair is None and place == 0:
            arms.append(Arm(PLAIN, "none", peer=address, label=label))
        else:
            arms.append(Arm(label, "none", peer=address))
    if not arms:
        raise InvalidInput("nothing to measure", "Name a pair, or give --url ADDRESS")
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise InvalidInput(
            "two arms have the same name", "Name the addresses: --url one=http://... --url two=http://..."
        )
    return tuple(arms)


def chosen_prompts(options: BenchOptions, file: Path | None = None) -> tuple[Prompt, ...]:
    """Our own prompts, or those of `file`. Raises InvalidInput when a kind that was asked for is not among them."""
    prompts = load_prompts(file)
    if unknown := set(options.kinds) - {prompt.kind for prompt in prompts}:
        known = ", ".join(dict.fromkeys(prompt.kind for prompt in prompts))
        raise InvalidInput(f"no kind of text named {min(unknown)!r}", f"There are: {known}")
    return prompts


def begin(
    options: BenchOptions, pair: BenchPair | None, prompts: tuple[Prompt, ...], start: Callable[[], BenchEngine]
) -> tuple[BenchEngine, BenchRun]:
    """The first start of the engine, warm, and the run that its speed allows; nothing is measured yet."""
    began = time.perf_counter()
    engine = start()
    try:
        speeds = replace(engine.warm_up(), elapsed=time.perf_counter() - began)
        return engine, _new_run(options, pair, prompts, speeds)
    except BaseException:
        engine.close()
        raise


def _new_run(
    options: BenchOptions, pair: BenchPair | None, prompts: tuple[Prompt, ...], speeds: Speeds
) -> BenchRun:
    from localspec.bench.environment import describe

    target = pair.files.target if pair is not None else None
    draft = pair.files.draft if pair is not None else None
    same = target is not None and draft is not None and target.samefile(draft)
    plan = make_plan(prompts, arms_of(options, pair), options, speeds, _sweep_arms(options, pair))
    settings: dict[str, Any] = {
        "quick": options.quick, "starts": options.starts, "budget_seconds": options.budget,
        "cooldown_seconds": options.cooldown, "seed": options.seed, "temperatures": list(options.temperatures),
        "depths": list(options.depths), "same_file": same, "draft": str(draft) if draft else "",
        "drafts": {name: str(found.path) for name, found in pair.drafts.items() if name} if pair else {},
        "peers": {name: str(path) for name, path in options.peers}, "urls": list(options.urls),
    }  # fmt: skip
    if pair is not None:
        settings |= settings_of(pair)
    environment = describe(target, draft)
    return BenchRun(_name(options, pair), datetime.now(UTC).isoformat(timespec="seconds"), environment, settings, plan)


def settings_of(pair: BenchPair) -> dict[str, Any]:
    """How the pair is loaded, as a run keeps it."""
    own = pair.settings
    return {
        "context": own.context, "threads": own.threads, "gpu_layers": own.gpu_layers,
        "draft_gpu_layers": own.draft_gpu_layers, "cache_type": own.cache_type,
        "flash_attention": own.flash_attention, "max_draft_length": own.max_draft_length,
    }  # fmt: skip


def _name(options: BenchOptions, pair: BenchPair | None) -> str:
    if pair is None:
        return ", ".join(options.urls)
    files = pair.files
    own = files.name if files.lock is not None else files.target.name
    return f"{own} + {files.draft.name}" if files.draft is not None and files.lock is None else own


def starter(options: BenchOptions, pair: BenchPair | None) -> Callable[[], BenchEngine]:
    """Makes one start of everything that is measured."""

    def start() -> BenchEngine:
        engines: dict[str, BenchEngine] = {}
        try:
            if pair is not None:
                engines[""] = _local(pair, options.seed)
                for name, program in options.peers:
                    engines[name] = _peer(name, program, pair, options.seed)
            for arm in arms_of(options, pair):
                if arm.peer and arm.peer not in engines:
                    engines[arm.peer] = Endpoint(arm.peer, options.model, options.api_key, seed=options.seed)
        except BaseException:
            Ensemble(engines).close()
            raise
        return Ensemble(engines)

    return start


class Ensemble:
    """Several programs as one: each arm goes to its own."""

    def __init__(self, engines: Mapping[str, BenchEngine]) -> None:
        self._engines = engines

    def warm_up(self) -> Speeds:
        """All of them; the first one's speeds, the time of all."""
        speeds = [engine.warm_up() for engine in self._engines.values()]
        return replace(speeds[0], start_seconds=sum(each.start_seconds for each in speeds))

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        return self._engines[arm.peer].measure(cell, prompt, arm, reuse)

    def close(self) -> None:
        for engine in self._engines.values():
            with suppress(EngineError):
                engine.close()


def _local(pair: BenchPair, seed: int) -> LocalEngine:
    from localspec.engine.process.client import EngineClient
    from localspec.ground.machine import physical_cores

    client = EngineClient(logs.folder())
    return LocalEngine(client, pair.settings, physical_cores(), pair.drafts, seed)


def _peer(name: str, program: Path, pair: BenchPair, seed: int) -> BenchEngine:
    from localspec.ground.machine import physical_cores
    from localspec.pairs.gguf.header import read_header

    settings = pair.settings
    if name == "llama-server":
        return LlamaServer(program, settings, physical_cores(), seed)
    return SpeculativeSimple(program, settings, physical_cores(), read_header(settings.target))


def _sweep_arms(options: BenchOptions, pair: BenchPair | None) -> tuple[Arm, ...]:
    if pair is None or "" not in pair.drafts:
        return ()
    sweep = tuple(Arm(f"k{length}", "model", length) for length in _sweep_lengths(options))
    if not sweep or not pair.has_template:
        return sweep
    # One length without the chat template too, where there is one to leave out.
    usual = next((arm for arm in sweep if arm.length == _RAW_LENGTH), sweep[len(sweep) // 2])
    return (*sweep, replace(usual, name=f"{usual.name} raw", raw=True))


def _sweep_lengths(options: BenchOptions) -> tuple[int, ...]:
    if options.lengths is not None:
        return options.lengths
    return () if options.quick else SWEEP_LENGTHS
