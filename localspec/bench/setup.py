"""From what a person typed to a run that can be executed: files, checks, arms, engines, plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec import logs
from localspec.bench.endpoint import Endpoint
from localspec.bench.local_engine import DraftFile, LocalEngine
from localspec.bench.peers import LlamaServer, SpeculativeSimple
from localspec.bench.plan import SWEEP_LENGTHS, Speeds, Wishes, make_plan
from localspec.bench.records import PLAIN, Arm, BenchRun, Cell, Measurement, Prompt
from localspec.bench.runner import BenchEngine
from localspec.engine.settings import DEFAULT_CONTEXT, LoadSettings
from localspec.errors import EngineError, InvalidInput
from localspec.session import LoadOptions

if TYPE_CHECKING:
    from localspec.pairs.resolve import PairFiles


_RAW_LENGTH = 4
"""Draft length at which acceptance with and without the chat template is compared."""
_ROOM = 1536
"""Tokens for a question and its answer beside the text before them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of `bench`, read."""

    pair: str | None
    load: LoadOptions = field(default_factory=LoadOptions)
    drafters: tuple[str, ...] = ()
    """Further arms by drafter: model, lookup."""
    lengths: tuple[int, ...] | None = None
    """Draft lengths of the sweep; None = the usual ones."""
    drafts: tuple[str, ...] = ()
    """Other draft models to try."""
    peers: tuple[tuple[str, Path], ...] = ()
    urls: tuple[str, ...] = ()
    model: str = ""
    """Name to ask the servers at `urls` for."""
    api_key: str = ""
    temperatures: tuple[float, ...] = (0.0,)
    depths: tuple[int, ...] = (0,)
    kinds: tuple[str, ...] = ()
    starts: int = 3
    budget: float = 1800.0
    quick: bool = False
    cooldown: float = 0.0
    seed: int = 1
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """The files that localspec's own arms use."""

    files: PairFiles
    settings: LoadSettings
    drafts: Mapping[str, DraftFile]
    """By the name that arms call them; "" is the pair's own."""
    has_template: bool = True
    """Whether the target's prompts go through a chat template."""


def find_pair(asked: Asked) -> Pair | None:
    """Find and check the pair and every other draft; None when only addresses are measured."""
    from localspec.session import prepare, read

    if asked.pair is None:
        return None
    load = replace(asked.load, context=_context(asked))
    own = prepare(asked.pair, load)
    settings = own.settings
    longest = max((arm.length or 0 for arm in _sweep_arms(asked, True)), default=0)
    settings = replace(settings, max_draft_length=max(settings.max_draft_length, longest))
    drafts = {}
    if settings.draft is not None:
        drafts[""] = DraftFile(settings.draft, settings.masked_ids, settings.shared_rows)
    for name in asked.drafts:
        found = prepare(asked.pair, replace(load, draft=name)).settings
        if found.draft is None:
            raise InvalidInput(f"no draft model is meant by {name!r}", "Name files or models: --drafts a,b")
        drafts[name] = DraftFile(found.draft, found.masked_ids, found.shared_rows)
    return Pair(own.files, settings, drafts, bool(read(own.files)[0].chat_template))


def _context(asked: Asked) -> int | None:
    """Room for the deepest question; the usual context where that is enough."""
    needed = max(asked.depths) + _ROOM
    given = asked.load.context
    if given is None:
        return needed if needed > DEFAULT_CONTEXT else None
    if max(asked.depths) and needed > given:
        raise InvalidInput(
            f"a depth of {max(asked.depths)} needs {needed} tokens of context, not {given}", "Use a larger --ctx"
        )
    return given


def arms_of(asked: Asked, pair: Pair | None) -> tuple[Arm, ...]:
    """The arms of the main comparison, the reference first. With addresses only, the first one is the reference."""
    arms: list[Arm] = []
    if pair is not None:
        arms = [Arm(PLAIN, "none"), Arm("auto")]
        arms += [Arm(drafter, drafter) for drafter in asked.drafters]
        arms += [Arm(f"auto+{name}", "auto", None, name) for name in asked.drafts]
        arms += [Arm(name, "none", peer=name) for name, _ in asked.peers]
    for place, url in enumerate(asked.urls):
        label, equals, address = url.partition("=")
        if not equals or "/" in label:
            label, address = url, url
        arms.append(Arm(PLAIN if pair is None and place == 0 else label, "none", peer=address))
    if not arms:
        raise InvalidInput("nothing to measure", "Name a pair, or give --url ADDRESS")
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise InvalidInput(
            "two arms have the same name", "Name the addresses: --url one=http://... --url two=http://..."
        )
    return tuple(arms)


def wishes_of(asked: Asked, pair: Pair | None) -> Wishes:
    """What to plan for."""
    return Wishes(
        arms=arms_of(asked, pair),
        sweep=_with_raw(_sweep_arms(asked, pair is not None and "" in pair.drafts), pair),
        temperatures=asked.temperatures,
        depths=asked.depths,
        kinds=asked.kinds,
        starts=asked.starts,
        budget=asked.budget,
        quick=asked.quick,
        cooldown=asked.cooldown,
        seed=asked.seed,
        max_tokens=asked.max_tokens,
    )


def new_run(asked: Asked, pair: Pair | None, prompts: tuple[Prompt, ...], speeds: Speeds, name: str) -> BenchRun:
    """A run with its plan, nothing measured yet."""
    from localspec.bench.environment import describe

    target = pair.files.target if pair is not None else None
    draft = pair.files.draft if pair is not None else None
    same = target is not None and draft is not None and target.samefile(draft)
    plan = make_plan(prompts, wishes_of(asked, pair), speeds)
    settings: dict[str, Any] = {
        "quick": asked.quick, "starts": asked.starts, "budget_seconds": asked.budget,
        "cooldown_seconds": asked.cooldown, "seed": asked.seed, "temperatures": list(asked.temperatures),
        "depths": list(asked.depths), "same_file": same, "draft": str(draft) if draft else "",
        "drafts": {name: str(found.path) for name, found in pair.drafts.items() if name} if pair else {},
        "peers": {name: str(path) for name, path in asked.peers}, "urls": list(asked.urls),
    }  # fmt: skip
    if pair is not None:
        own = pair.settings
        settings |= {
            "context": own.context, "threads": own.threads, "gpu_layers": own.gpu_layers,
            "draft_gpu_layers": own.draft_gpu_layers, "cache_type": own.cache_type,
            "flash_attention": own.flash_attention, "max_draft_length": own.max_draft_length,
        }  # fmt: skip
    environment = describe(target, draft)
    return BenchRun(name, datetime.now(UTC).isoformat(timespec="seconds"), environment, settings, plan)


def starter(asked: Asked, pair: Pair | None) -> Callable[[], BenchEngine]:
    """Makes one start of everything that is measured."""

    def start() -> BenchEngine:
        engines: dict[str, BenchEngine] = {}
        try:
            if pair is not None:
                engines[""] = _local(pair, asked.seed)
                for name, program in asked.peers:
                    engines[name] = _peer(name, program, pair, asked.seed)
            for arm in arms_of(asked, pair):
                if arm.peer and arm.peer not in engines:
                    engines[arm.peer] = Endpoint(arm.peer, asked.model, asked.api_key, seed=asked.seed)
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


def _local(pair: Pair, seed: int) -> LocalEngine:
    from localspec.engine.client import EngineClient
    from localspec.machine import physical_cores

    client = EngineClient(logs.folder())
    return LocalEngine(client, pair.settings, physical_cores(), pair.drafts, seed)


def _peer(name: str, program: Path, pair: Pair, seed: int) -> BenchEngine:
    from localspec.machine import physical_cores
    from localspec.pairs.gguf_header import read_header

    settings = pair.settings
    if name == "llama-server":
        return LlamaServer(program, settings, physical_cores(), seed)
    return SpeculativeSimple(program, settings, physical_cores(), read_header(settings.target))


def _sweep_arms(asked: Asked, has_draft: bool) -> tuple[Arm, ...]:
    if not has_draft or asked.pair is None or (asked.quick and asked.lengths is None):
        return ()
    lengths = SWEEP_LENGTHS if asked.lengths is None else asked.lengths
    return tuple(Arm(f"k{length}", "model", length) for length in lengths)


def _with_raw(sweep: tuple[Arm, ...], pair: Pair | None) -> tuple[Arm, ...]:
    """One length of the sweep without the chat template too, where there is one to leave out."""
    if not sweep or pair is None or not pair.has_template:
        return sweep
    usual = next((arm for arm in sweep if arm.length == _RAW_LENGTH), sweep[len(sweep) // 2])
    return (*sweep, replace(usual, name=f"{usual.name} raw", raw=True))
