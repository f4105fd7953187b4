"""The records of a bench run: what to measure, what was measured, and what it means.

Times are seconds, sizes bytes, rates tokens per second. All go to JSON and back as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["main", "sweep"]
VerdictWord = Literal["pays", "does not pay", "no measurable gain"]

PLAIN = "plain"
"""Name of the arm that every other one is compared with."""

POOLED = "all kinds"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question of a prompt set."""

    id: str
    kind: str
    """Kind of text: `code`, `chat`, ..."""
    text: str
    max_tokens: int = 128
    """Where an answer is cut that does not end by itself."""
    expected_tokens: int = 60
    """Tokens of a typical answer: for estimates only."""
    quick: bool = False
    """Whether `--quick` uses it."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to make the answers."""

    name: str
    drafter: str = "auto"
    """auto, model, lookup or none."""
    length: int | None = None
    """Fixed draft length; None = auto."""
    draft: str = ""
    """Another draft model than the pair's own: its name; "" = the pair's own."""
    peer: str = ""
    """Another program instead of localspec's engine: `llama-server`, an address; "" = localspec."""
    label: str = ""
    """What people call it, where that is not its name: a server that all others are compared with."""
    raw: bool = False
    """Prompts go without the chat template: only for how much of the draft is accepted then."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One answer to make: where it stands in the plan."""

    index: int
    """Place in the order of the whole run."""
    start: int
    """Which start of the engine, from 0."""
    block: int
    """Cells of one block share prompt, temperature and depth, and are measured one after the other."""
    stage: Stage
    prompt: str
    """Id of the prompt."""
    kind: str
    arm: str
    temperature: float = 0.0
    depth: int = 0
    """Tokens of other text before the question, about."""
    max_tokens: int = 128


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer, as measured. Counts come from the engine, times from the bench's own clock."""

    emitted: int = 0
    """Generated tokens by the engine's count, the end token included."""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens that were in the cache already: then the time to the first token says little."""
    ttft_seconds: float = 0.0
    first_tokens: int = 1
    """Tokens that were there after `ttft_seconds`; the decode time covers the others."""
    wall_seconds: float = 0.0
    """From the request to the end, first token and prefill included."""
    finish: str = ""
    """`stop`, `length`, ..."""
    text_hash: str = ""
    """Of the generated token ids (of the text, where there are no ids)."""
    answer_empty: bool = False
    """Nothing but thinking, or nothing at all."""
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    target_passes: int = 0
    """0 where the program does not tell."""
    reached: tuple[int, ...] = ()
    """Rounds that verified a guess at draft position 1, 2, ..."""
    kept: tuple[int, ...] = ()
    """Of these, rounds in which it was accepted."""
    rounds_by_drafter: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the decode time by part: draft, verify, sample, rewind, other."""
    verify_by_rows: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Rows of a target pass -> (passes, median seconds)."""
    draft_steps: int = 0
    draft_seconds: float = 0.0
    engine_rate: float | None = None
    """The program's own figure for decode tokens/s."""
    tokens_counted: bool = True
    """Whether the program said how many tokens it made; otherwise the count is a guess."""
    draft_works: bool = True
    """Whether the draft model guessed when it was ordered to, while warming up."""
    state: str = ""
    """Whether drafts were on or off at the end, with the reason."""
    memory_bytes: int = 0
    """Resident memory of the program after the answer; 0 = unknown."""
    error: str = ""
    """Why there is no measurement; "" when there is one."""

    @property
    def decode_seconds(self) -> float:
        return self.wall_seconds - self.ttft_seconds

    @property
    def rate(self) -> float | None:
        """Decode tokens per second by the bench's clock; None where it makes no sense."""
        if self.error or self.emitted < 2 or self.decode_seconds <= 0:
            return None
        rate = (self.emitted - self.first_tokens) / self.decode_seconds
        return rate if 0 < rate <= MAX_RATE else None


MAX_RATE = 20_000.0
"""No local model makes more tokens per second: a higher figure is a broken counter and is never shown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell and what came of it."""

    cell: Cell
    measured: Measurement
    at: float = 0.0
    """When it began, in seconds since the run began."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run measures, in order."""

    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...]
    prompts: tuple[Prompt, ...]
    """Those that the cells use."""
    starts: int
    seed: int
    """Of the random order, and of the sampling above temperature 0."""
    cooldown: float = 0.0
    """Seconds of rest before every cell."""
    reuse_prompt: bool = False
    """Whether arms of one block share the prompt's cache; then only the first one's TTFT counts."""
    left_out: tuple[str, ...] = ()
    """What did not fit into the time, one sentence each."""
    budget: float = 0.0
    """Seconds for the cells, engine starts between them included; 0 = no limit."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A whole run: enough to report, compare and continue it."""

    pair: str
    created: str
    """ISO 8601, UTC."""
    environment: Mapping[str, Any]
    settings: Mapping[str, Any]
    plan: Plan
    samples: tuple[Sample, ...] = ()
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the 95 % interval around it; no bounds with fewer than two engine starts."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """A reason to doubt a row."""

    code: str
    text: str
    blocks: bool = True
    """Whether the row cannot make a verdict; otherwise it is a note."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on one kind of text."""

    stage: Stage
    kind: str
    arm: str
    temperature: float
    depth: int
    cells: int
    starts: int
    tokens_per_second: Interval | None
    speedup: Interval | None
    """Against the plain arm on the same prompts, paired; None for the plain arm itself."""
    verdict: VerdictWord | None
    """None for the plain arm."""
    flags: tuple[Flag, ...] = ()
    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    accepted_per_position: tuple[float | None, ...] = ()
    drafted_per_round: float | None = None
    ttft_seconds: float | None = None
    prompt_tokens_per_second: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Share of the decode time by part."""
    rounds_by_drafter: Mapping[str, int] = field(default_factory=dict)
    same_text: tuple[int, int] = (0, 0)
    """(answers equal to plain's, answers compared); only at temperature 0."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Time of a target pass by its rows."""

    rows: int
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drift:
    """How the plain arm's speed moved while nothing was changed."""

    per_start: float
    """Relative change from the first to the last plain answer of a start; -0.1 = 10 % slower."""
    over_run: float
    """The same from the first start to the last."""
    certain: bool
    """Whether `per_start` is more than twice its standard error."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run says."""

    rows: tuple[Row, ...]
    curve: tuple[CurvePoint, ...]
    """Verify cost: seconds of a target pass by rows, without extra depth."""
    draft_step_seconds: float | None
    drift: Drift | None
    knee: Mapping[str, int]
    """Kind -> the shortest draft length within 2 % of the best of the sweep, prompts formatted as in a chat."""
    headline: str
    """The answer in one sentence."""
    recommended: str
    """`on` or `off`: what to set here; "" where no pair was measured."""
    notes: tuple[str, ...] = ()
    draft_unused: bool = False
    """A draft model was loaded and no arm ever used it."""
    reference: str = PLAIN
    """What the others are compared with, for people: plain decoding, or a server by its label."""
    acceptance_by_format: Mapping[str, float] = field(default_factory=dict)
    """`chat` and `raw` -> share of the draft model's guesses that was accepted with and without the chat
    template, at one draft length; {} where only one of them was measured."""
