"""Which quantization of a draft is best for a target: each rung is made or taken, loaded, and measured.

The target stays loaded; only the draft changes. Every rung answers the same prompts, greedily, with the same
draft length, and all of them take turns at each prompt, so that a machine that slows down slows all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.engine.records import GenerationStats
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import Message
from localspec.ground.errors import InvalidInput
from localspec.ground.locations import data_folder
from localspec.pairs import quantize
from localspec.pairs.gguf.split_files import read_model
from localspec.pairs.memory.fit_records import Machine, Wish
from localspec.pairs.names import resolve
from localspec.session import memory_plan, quantizing

if TYPE_CHECKING:
    from localspec.bench.records import Prompt
    from localspec.session import LoadOptions, Session

DEFAULT_TYPES = ("q4_0", "q4_0-pure", "q4_k_m", "q8_0")
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Rung:
    """One file of the draft."""

    type: str
    """Quantization, for example `Q4_0`."""
    file: Path
    made: bool
    """Whether it was quantized for this ladder."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one rung did."""

    rung: Rung
    memory_bytes: int
    """Weights, copies, cache and buffers of the draft."""
    tokens: int
    """Emitted on all prompts."""
    verified: int
    accepted: int
    seconds: float
    """Decoding on all prompts, after each one's first token."""
    step_seconds: float
    """Draft time per guess."""
    tokens_per_second: float
    accepted_per_second: float

    @property
    def acceptance_rate(self) -> float:
        """accepted / verified."""
        return self.accepted / self.verified if self.verified else 0.0


@dataclass(frozen=True, slots=True)
class Ladder:
    """All rungs, the best first."""

    rungs: tuple[Measured, ...]
    plain_tokens_per_second: float
    """The target alone on the same prompts."""

    @property
    def best(self) -> Measured:
        """Most accepted tokens per second; of rungs within 2 %, the smallest."""
        top = self.rungs[0].accepted_per_second
        near = [rung for rung in self.rungs if rung.accepted_per_second >= 0.98 * top]
        return min(near, key=lambda rung: rung.memory_bytes)


def rungs(
    draft: str,
    types: Sequence[str] = DEFAULT_TYPES,
    on_progress: Callable[[str, float], None] = lambda type, fraction: None,
    cache_folder: Path | None = None,
) -> list[Rung]:
    """The draft itself, and each of `types` that it is not: one made earlier, or made now."""
    for to in types:
        if to not in quantize.TYPES:
            raise InvalidInput(f"no type named {to!r}", f"Use some of {', '.join(quantize.TYPES)}")
    files = resolve.find_pair(draft, "none", cache_folder=cache_folder)
    own = read_model(files.target_files).file_type
    found = [Rung(own, files.target, False)]
    for to in types:
        if to.upper() == own:
            continue
        out = data_folder() / "models" / quantize.default_name(files.target, to)
        if not out.exists():
            plan = quantizing.prepare(str(files.target), to, out)
            quantizing.run(plan, lambda fraction, to=to: on_progress(to, fraction))  # type: ignore[misc]
            found.append(Rung(to.upper(), out, True))
        else:
            found.append(Rung(to.upper(), out, False))
    return found


def measure(
    session: Session,
    ladder: Sequence[Rung],
    options: LoadOptions,
    prompts: Sequence[Prompt],
    length: int,
    max_tokens: int,
    on_turn: Callable[[Rung | None, int], None] = lambda rung, prompt: None,
) -> Ladder:
    """Run every rung over every prompt, and the target alone; the session's draft is changed on the way.

    `on_turn` hears which rung (None = the target alone) comes next, and on which prompt.
    """
    speculation = SpeculationSettings("model", length)
    plain: list[GenerationStats] = []
    answers: list[list[GenerationStats]] = [[] for _ in ladder]
    for number, prompt in enumerate(prompts):
        on_turn(None, number)
        plain.append(_answer(session, prompt, SpeculationSettings("none"), max_tokens))
        for rung, gathered in zip(ladder, answers, strict=True):
            on_turn(rung, number)
            session.swap_draft(str(rung.file), options)
            _answer(session, prompt, speculation, WARM_UP_TOKENS)
            gathered.append(_answer(session, prompt, speculation, max_tokens))
    results = [_summed(rung, session, gathered) for rung, gathered in zip(ladder, answers, strict=True)]
    ranked = sorted(results, key=lambda result: -result.accepted_per_second)
    return Ladder(tuple(ranked), _rate(plain))


def _answer(
    session: Session, prompt: Prompt, speculation: SpeculationSettings, max_tokens: int
) -> GenerationStats:
    chat = session.info.has_template
    request = GenerationRequest(
        messages=(Message("user", prompt.text),) if chat else (),
        prompt=None if chat else prompt.text,
        sampler=SamplerSettings(temperature=0),
        speculation=speculation,
        max_tokens=min(max_tokens, prompt.max_tokens),
    )
    for _ in session.generate(request):
        pass
    assert session.stats is not None
    return session.stats


def _summed(rung: Rung, session: Session, answers: Sequence[GenerationStats]) -> Measured:
    seconds = sum(_decoding(stats) for stats in answers)
    drafted = sum(stats.drafted for stats in answers)
    accepted = sum(stats.accepted for stats in answers)
    return Measured(
        rung,
        _memory(rung, session),
        tokens=sum(stats.emitted for stats in answers),
        verified=sum(stats.verified for stats in answers),
        accepted=accepted,
        seconds=seconds,
        step_seconds=sum(stats.draft_seconds for stats in answers) / max(1, drafted),
        tokens_per_second=_rate(answers),
        accepted_per_second=accepted / seconds if seconds else 0.0,
    )


def _decoding(stats: GenerationStats) -> float:
    """Seconds after the first token."""
    return stats.wall_seconds - (stats.ttft_seconds or 0.0)


def _rate(answers: Sequence[GenerationStats]) -> float:
    seconds = sum(map(_decoding, answers))
    return sum(max(0, stats.emitted - 1) for stats in answers) / seconds if seconds else 0.0


def _memory(rung: Rung, session: Session) -> int:
    """Bytes that the draft takes in the session's context."""
    room = Machine(1 << 50, 1 << 50, repacked_types=memory_plan.this_machine().repacked_types)
    info = read_model((rung.file,))
    settings = session.settings
    wish = Wish(context=settings.context, cache_type=settings.cache_type)
    return memory_plan.plan_pair(info, info, room, wish, local=False).bytes_of("draft")
