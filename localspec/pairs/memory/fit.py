"""Where does everything go, and does it fit? Pure planning: headers and a machine in, a plan out.

The draft goes to the GPU first: it runs several times for each pass of the target. Then everything is tried
as asked, and after that with one concession after the other: context, cache type, smaller draft, target
layers in RAM, no draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.memory import sizes
from localspec.pairs.memory.fit_records import (
    GIB,
    RAM,
    Device,
    FitPlan,
    Machine,
    Part,
    Place,
    Placement,
    Role,
    Step,
    Wish,
    size_text,
)
from localspec.pairs.memory.sizes import MIB, Measured, Weights

DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 2048
SMALLER_CACHE = "q8_0"
PROGRAM = 45 * MIB
"""The engine's process before any model is loaded."""
TOKEN_OVERHEAD = 100
"""Bytes that libllama's tables keep for each token of a vocabulary."""

Measurements = Mapping[tuple[str, int, str], Measured]


def plan(
    target: ModelInfo,
    draft: ModelInfo | None,
    machine: Machine,
    wish: Wish | None = None,
    smaller_drafts: Sequence[ModelInfo] = (),
    measured: Measurements | None = None,
) -> FitPlan:
    """The first layout that fits, in the order of the concessions; else the one that lacks least.

    `smaller_drafts`: compatible drafts that could take `draft`'s place. `measured`: libllama's own numbers,
    by (source, context, cache type), where they are known.
    """
    wish = wish or Wish()
    planner = _Planner(target, machine, wish, measured or {})
    first: FitPlan | None = None
    best: FitPlan | None = None
    for setup in _setups(target, draft, machine, wish, smaller_drafts):
        candidate = planner.lay_out(setup)
        first = first or candidate
        if candidate.fits:
            return _explained(candidate, first, target)
        if best is None or _lack(candidate) < _lack(best):
            best = candidate
    assert best is not None and first is not None
    return _explained(best, first, target)


@dataclass(frozen=True, slots=True)
class _Setup:
    """One thing to try."""

    context: int
    cache_type: str
    draft: ModelInfo | None
    partial: bool
    """Whether target layers may stay in RAM."""


def _setups(
    target: ModelInfo, draft: ModelInfo | None, machine: Machine, wish: Wish, smaller: Sequence[ModelInfo]
) -> Iterator[_Setup]:
    """Everything to try, in order."""
    asked = wish.context or min(DEFAULT_CONTEXT, target.context_length or DEFAULT_CONTEXT)
    contexts = [asked]
    while wish.context is None and contexts[-1] // 2 >= SMALLEST_CONTEXT:
        contexts.append(contexts[-1] // 2)
    caches = [wish.cache_type] if wish.cache_type else ["f16", SMALLER_CACHE]
    for partial in (False, True) if machine.devices else (False,):
        for candidate in (draft, *(smaller if draft is not None else ())):
            for cache_type in caches:
                for context in contexts:
                    yield _Setup(context, cache_type, candidate, partial)
    if draft is not None:
        yield from _setups(target, None, machine, wish, ())


def _lack(candidate: FitPlan) -> int:
    return sum(place.over for place in candidate.places)


class _Planner:
    """Lays out one setup after the other for the same machine."""

    def __init__(self, target: ModelInfo, machine: Machine, wish: Wish, measured: Measurements) -> None:
        self.target, self.machine, self.wish, self.measured = target, machine, wish, measured

    def lay_out(self, setup: _Setup) -> FitPlan:
        rows = self.wish.draft_length + 1  # without a draft model, prompt lookup guesses
        left = [max(0, device.free - _reserve(device.total)) for device in self.machine.devices]
        parts = [Part("program", "process", RAM, PROGRAM)]
        drafted = None
        if setup.draft is not None:
            model = self._model("draft", setup.draft, setup, 1)
            drafted = self._place_draft(model, left)
            parts += model.parts(drafted, self.machine.devices)
        model = self._model("target", self.target, setup, rows)
        placed = self._place_target(model, left, setup.partial)
        parts += model.parts(placed, self.machine.devices)
        places = self._places(parts)
        return FitPlan(
            fits=not any(place.over for place in places) and (setup.partial or self._as_wished(placed)),
            context=setup.context,
            cache_type=setup.cache_type,
            draft_length=rows - 1,
            target=placed,
            draft=drafted,
            draft_source=setup.draft.source if setup.draft is not None else "",
            parts=tuple(parts),
            places=places,
            steps=(),
        )

    def _model(self, role: Role, info: ModelInfo, setup: _Setup, rows: int) -> _Model:
        known = self.measured.get((info.source, setup.context, setup.cache_type))
        compute = known.compute if known else sizes.compute_bytes(info, setup.context, rows)
        return _Model(
            role=role,
            weights=sizes.weights(info, self.machine.repacked_types),
            cache=sizes.cache_bytes(info, setup.context, setup.cache_type),
            state=sizes.states_bytes(info, rows - 1),
            compute=compute,
            host_compute=min(compute, sizes.MICRO_BATCH * 4 * 2 * info.embedding_length),
            logits=sizes.output_bytes(info, rows) + TOKEN_OVERHEAD * info.vocabulary_size,
        )

    def _place_draft(self, model: _Model, left: list[int]) -> Placement:
        """The whole draft on the device with most room, else in RAM."""
        whole = len(model.units)
        wanted = self.wish.draft_gpu_layers
        count = whole if wanted is None or wanted < 0 else min(wanted, whole)
        by_device = [0] * len(left)
        if left and count:
            widest = max(range(len(left)), key=lambda i: left[i])
            need = model.on_device(count)
            if wanted is not None or need <= left[widest]:
                by_device[widest] = count
                left[widest] -= need
        return Placement(sum(by_device), whole, tuple(by_device))

    def _place_target(self, model: _Model, left: list[int], partial: bool) -> Placement:
        """As many layers as fit, from the output downwards; libllama gives the last ones to the last device."""
        whole = len(model.units)
        wanted = self.wish.gpu_layers
        ordered = whole if wanted is not None and wanted < 0 else wanted
        count = whole if ordered is None else min(ordered, whole)
        by_device = [0] * len(left)
        placed = 0
        for i in reversed(range(len(left))):
            while placed < count and model.on_device(by_device[i] + 1, placed - by_device[i]) <= left[i]:
                by_device[i] += 1
                placed += 1
            left[i] -= model.on_device(by_device[i], placed - by_device[i])
        if left and placed < count and (ordered is not None or not partial):
            # An order, or the question whether all of it fits: the rest goes where it does not, and shows.
            by_device[0] += count - placed
            placed = count
        return Placement(placed, whole, tuple(by_device))

    def _as_wished(self, placed: Placement) -> bool:
        everywhere = placed.gpu_layers == placed.layers
        return not self.machine.devices or self.wish.gpu_layers is not None or everywhere

    def _places(self, parts: Sequence[Part]) -> tuple[Place, ...]:
        def used(name: str) -> int:
            return sum(part.bytes for part in parts if part.place == name)

        machine = self.machine
        shared = sum(used(device.name) for device in machine.devices if device.shares_ram)
        reserve = _ram_reserve(machine.ram_total)
        spare = sum(part.bytes for part in parts if part.what == "second copy of weights")
        ram = Place(RAM, "", machine.ram_total, machine.ram_free, reserve, used(RAM) + shared, spare)
        devices = [
            Place(d.name, d.description, d.total, d.free, _reserve(d.total), used(d.name))
            for d in machine.devices
        ]
        return (ram, *devices)


@dataclass(slots=True)
class _Model:
    """One model's sizes in one setup; bytes."""

    role: Role
    weights: Weights
    cache: tuple[int, ...]
    state: int
    compute: int
    host_compute: int
    """Compute buffer that stays in RAM even when every layer is on a GPU."""
    logits: int
    """Logits and vocabulary tables, always in RAM."""
    units: list[int] = field(init=False)
    """What each step of `gpu_layers` moves: the output, then the last layer, and so on to the first."""

    def __post_init__(self) -> None:
        count = max(1, len(self.weights.layers))
        layers = [
            size + (self.cache[i] if i < len(self.cache) else 0) + self.state // count
            for i, size in enumerate(self.weights.layers)
        ]
        self.units = [self.weights.output, *reversed(layers)]

    def on_device(self, count: int, first: int = 0) -> int:
        """Bytes that `count` units from `first` on take on one device, compute buffer included."""
        return sum(self.units[first : first + count]) + (self.compute if count else 0)

    def parts(self, placed: Placement, devices: Sequence[Device]) -> list[Part]:
        """The parts of this model under a placement."""
        found: list[Part] = []
        first = 0
        for i in reversed(range(len(placed.by_device))):
            count = placed.by_device[i]
            if count:
                found += self._device_parts(devices[i].name, first, count)
            first += count
        return found + self._ram_parts(placed)

    def _device_parts(self, name: str, first: int, count: int) -> list[Part]:
        layers = self._layers(first, count)
        weights = sum(self.weights.layers[i] for i in layers) + (self.weights.output if first == 0 else 0)
        return [*self._kept(name, weights, layers), Part(self.role, "compute", name, self.compute)]

    def _ram_parts(self, placed: Placement) -> list[Part]:
        first = placed.gpu_layers
        layers = self._layers(first, placed.layers - first)
        output_here = first == 0
        weights = sum(self.weights.layers[i] for i in layers) + self.weights.embedding
        copies = sum(self.weights.repacked[i] for i in layers)
        if output_here:
            weights += 0 if self.weights.tied else self.weights.output
            copies += self.weights.output_repacked
        found = self._kept(RAM, weights, layers)
        if copies:
            found.insert(1, Part(self.role, "second copy of weights", RAM, copies))
        found.append(Part(self.role, "compute", RAM, self.compute if layers else self.host_compute))
        return [*found, Part(self.role, "logits", RAM, self.logits)]

    def _kept(self, place: str, weights: int, layers: range) -> list[Part]:
        cache = sum(self.cache[i] for i in layers if i < len(self.cache))
        state = self.state * len(layers) // max(1, len(self.weights.layers))
        found = [Part(self.role, "weights", place, weights), Part(self.role, "KV cache", place, cache)]
        if state:
            found.append(Part(self.role, "state", place, state))
        return [part for part in found if part.bytes]

    def _layers(self, first: int, count: int) -> range:
        """Layer numbers behind `count` units from `first` on; unit 0 is the output, unit 1 the last layer."""
        total = len(self.weights.layers)
        highest = total - max(first, 1)
        lowest = total - (first + count - 1)
        return range(max(0, lowest), max(0, highest + 1))


def _explained(chosen: FitPlan, first: FitPlan, target: ModelInfo) -> FitPlan:
    """The plan with the steps that led to it from what was asked."""
    steps: list[Step] = []
    if chosen.draft is None and first.draft is not None:
        saves = first.bytes_of("draft")
        steps.append(Step("draft off", saves, "the target alone; prompt lookup still guesses"))
    elif chosen.draft_source != first.draft_source:
        saves = first.bytes_of("draft") - chosen.bytes_of("draft")
        steps.append(Step("smaller draft", saves, chosen.draft_source))
    if chosen.context != first.context:
        saves = _cache(first, first.context) - _cache(first, chosen.context)
        steps.insert(0, Step("context", saves, f"{first.context:,} -> {chosen.context:,} tokens"))
    if chosen.cache_type != first.cache_type:
        ratio = _bits(chosen.cache_type) / _bits(first.cache_type)
        saves = int(_cache(first, chosen.context) * (1 - ratio))
        steps.insert(1, Step("cache type", saves, f"{first.cache_type} -> {chosen.cache_type}"))
    in_ram = chosen.target.layers - chosen.target.gpu_layers
    if len(chosen.places) > 1 and in_ram and first.target.gpu_layers > chosen.target.gpu_layers:
        mine = [p for p in chosen.parts if p.place == RAM and p.model == "target"]
        saves = sum(part.bytes for part in mine if part.what in ("weights", "KV cache"))
        detail = f"{in_ram} of {chosen.target.layers} target layers in RAM"
        steps.append(Step("partial offload", saves, detail))
    return replace(chosen, steps=tuple(steps), notes=tuple(_notes(chosen, target)))


def _notes(chosen: FitPlan, target: ModelInfo) -> Iterator[str]:
    if len(chosen.places) == 1:
        return
    partial = chosen.target.gpu_layers < chosen.target.layers
    if chosen.draft is not None and chosen.draft.gpu_layers and partial:
        taken = sum(p.bytes for p in chosen.parts if p.model == "draft" and p.place != RAM)
        layer = max(1, sum(target.layer_bytes) // max(1, len(target.layer_bytes)))
        yield (
            f"the draft takes {size_text(taken)} of the GPU, room for about {taken // layer} target layers: "
            "it runs several times for each pass of the target, so it goes first"
        )
    if chosen.draft is not None and not chosen.draft.gpu_layers:
        yield "the draft stays in RAM: expect little or no gain from it"


def _cache(chosen: FitPlan, context: int) -> int:
    cache = chosen.bytes_of("target", "KV cache") + chosen.bytes_of("draft", "KV cache")
    return cache * sizes.padded(context) // sizes.padded(chosen.context)


def _bits(cache_type: str) -> float:
    elements, size = sizes.CACHE_BITS[cache_type]
    return size / elements


def _reserve(total: int) -> int:
    """Bytes of a GPU's memory left alone: the driver's context, the desktop, fragments."""
    return max(400 * MIB, total // 25)


def _ram_reserve(total: int) -> int:
    return min(max(400 * MIB, total // 25), 2 * GIB)
