"""The records of a memory plan: the machine, what was asked for, and what goes where. All sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localspec.pairs.memory import sizes
from localspec.pairs.memory.sizes import MIB

GIB = 1 << 30
RAM = "RAM"
Role = Literal["target", "draft"]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as ggml lists it."""

    name: str
    """For example `CUDA0`."""
    description: str
    total: int
    """Bytes."""
    free: int
    """Bytes."""
    shares_ram: bool = False
    """Its memory is the machine's own (integrated GPUs, Apple silicon)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to put things into."""

    ram_total: int
    """Bytes."""
    ram_free: int
    """Bytes that can be had without swapping."""
    devices: tuple[Device, ...] = ()
    repacked_types: frozenset[str] = sizes.REPACKED_X86
    """Tensor types of which this CPU keeps a second copy."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; None = whatever fits."""

    context: int | None = None
    """Tokens; None = min(8192, trained), and less where that does not fit."""
    cache_type: str | None = None
    """None = f16, and q8_0 where that does not fit."""
    draft_length: int = 16
    """Most guesses in one verify pass."""
    gpu_layers: int | None = None
    """Target layers on the GPU, the output counted as one; None = as many as fit."""
    draft_gpu_layers: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Something that takes memory."""

    model: Literal["target", "draft", "program"]
    what: str
    """`weights`, `second copy of weights`, `KV cache`, `state`, `compute`, `logits`, `process`."""
    place: str
    """`RAM` or a device's name."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one model's layers go."""

    gpu_layers: int
    """libllama's number: the last layers on a GPU, the output counted as one."""
    layers: int
    """All there are, the output counted as one."""
    by_device: tuple[int, ...]
    """Layers on each device, in the machine's order."""


@dataclass(frozen=True, slots=True)
class Step:
    """A concession that was made so that it fits."""

    name: Literal["context", "cache type", "smaller draft", "partial offload", "draft off"]
    saves: int
    """Bytes, of the place that was short."""
    detail: str


@dataclass(frozen=True, slots=True)
class Place:
    """One memory and what the plan does with it; bytes."""

    name: str
    description: str
    total: int
    free: int
    reserve: int
    """Left alone, for everything that is not ours."""
    used: int
    spare: int = 0
    """Of `used`: file pages that the system takes back when it needs them, because a second copy is used."""

    @property
    def needed(self) -> int:
        """Bytes that must be there, the reserve included."""
        return self.used - self.spare + self.reserve

    @property
    def over(self) -> int:
        """Bytes too many; 0 when it fits."""
        return max(0, self.needed - self.free)


@dataclass(frozen=True, slots=True)
class FitPlan:
    """Everything in its place."""

    fits: bool
    context: int
    """Tokens."""
    cache_type: str
    draft_length: int
    target: Placement
    draft: Placement | None
    draft_source: str
    """The file of the draft that the plan uses, "" without one."""
    parts: tuple[Part, ...]
    places: tuple[Place, ...]
    """RAM first, then the devices."""
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """Sentences for people: what the plan costs, what is only estimated."""

    @property
    def used(self) -> int:
        """Bytes in all places together."""
        return sum(part.bytes for part in self.parts)

    def bytes_of(self, model: str, what: str = "") -> int:
        """Bytes of one model, or of one kind of thing of it."""
        return sum(p.bytes for p in self.parts if p.model == model and what in ("", p.what))


def size_text(count: int) -> str:
    """Bytes for people: `9.8 GiB`, `312 MiB`."""
    return f"{count / GIB:.1f} GiB" if count >= 0.9995 * GIB else f"{count / MIB:.0f} MiB"


def lacking(plan: FitPlan) -> str:
    """What is short and by how much, in one sentence; "" when the plan fits."""
    return "; ".join(
        f"{place.name} needs {size_text(place.needed)}, {size_text(place.free)} free"
        for place in plan.places
        if place.over
    )
