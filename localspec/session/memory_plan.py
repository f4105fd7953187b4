"""This machine, or an imagined one, and the memory plan of a pair on it: for `session` and `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localspec.engine.process import ask_libllama
from localspec.ground.errors import InvalidInput, LocalspecError
from localspec.ground.machine import available_memory, cpu_features, cpu_name, processor, total_memory
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.memory import sizes
from localspec.pairs.memory.fit import DEFAULT_CONTEXT, Measurements, plan
from localspec.pairs.memory.fit_records import GIB, RAM, Device, FitPlan, Machine, Wish
from localspec.pairs.memory.sizes import Measured

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def this_machine() -> Machine:
    """Memory as it is now. Asks libllama for devices only when its build has a GPU part."""
    devices: tuple[Device, ...] = ()
    if ask_libllama.gpu_backends():
        devices = tuple(
            Device(d.name, d.description, d.total, min(d.free, d.total), _shares_ram(d))
            for d in ask_libllama.devices()
            if d.kind in ("gpu", "igpu")
        )
    return Machine(total_memory(), available_memory(), devices, _repacked())


def _shares_ram(device: ask_libllama.DeviceFacts) -> bool:
    return device.kind == "igpu" or device.name.startswith(("Metal", "MTL"))


def imagined_machine(ram: int | None, devices: Sequence[int]) -> Machine:
    """A machine with `devices` (bytes each) and `ram` bytes free; what is not said is as it is here."""
    here = this_machine()
    imagined = tuple(Device(f"GPU{i}", "imagined", size, size) for i, size in enumerate(devices))
    return Machine(
        ram if ram is not None else here.ram_total,
        ram if ram is not None else here.ram_free,
        imagined or here.devices,
        here.repacked_types,
    )


def plan_pair(
    target: ModelInfo,
    draft: ModelInfo | None,
    machine: Machine,
    wish: Wish,
    *,
    smaller_drafts: Sequence[ModelInfo] = (),
    local: bool = True,
) -> FitPlan:
    """The plan; for files on this disk (`local`) with libllama's own sizes, else by the headers alone."""
    measured = measure(target, draft, wish) if local else {}
    return plan(target, draft, machine, wish, smaller_drafts, measured)


def plan_download(target: ModelInfo, target_size: int, draft: ModelInfo | None, draft_size: int) -> FitPlan:
    """Would a pair run here if nothing else did? By headers alone; sizes are bytes of all files."""
    here = this_machine()
    devices = tuple(replace(device, free=device.total) for device in here.devices)
    empty = replace(here, ram_free=here.ram_total, devices=devices)
    smaller = sizes.whole(draft, draft_size) if draft is not None else None
    return plan(sizes.whole(target, target_size), smaller, empty, Wish())


def device_name(plan: FitPlan) -> str:
    """What a plan runs on, as measurements of it are kept: the processor, and the GPUs where it uses any."""
    layers = plan.target.gpu_layers or (plan.draft.gpu_layers if plan.draft is not None else 0)
    gpus = [f"{place.name} {place.description}" for place in plan.places if place.name != RAM] if layers else []
    return "; ".join((cpu_name() or "unknown processor", *gpus))


def measure(target: ModelInfo, draft: ModelInfo | None, wish: Wish) -> Measurements:
    """libllama's own numbers for both models as asked for. Where it cannot say, the headers must do."""
    context = wish.context or min(DEFAULT_CONTEXT, target.context_length or DEFAULT_CONTEXT)
    cache_type = wish.cache_type or "f16"
    models = [(target, wish.draft_length + 1)] + ([(draft, 1)] if draft is not None else [])
    questions = [
        (Path(info.source), [ask_libllama.ContextQuestion(context, rows, cache_type)]) for info, rows in models
    ]
    try:
        answers = ask_libllama.sizes(questions)
    except LocalspecError:
        return {}
    return {
        (info.source, context, cache_type): Measured(answer[0].compute, answer[0].cache)
        for (info, _), answer in zip(models, answers, strict=True)
        if answer[0] is not None
    }


def parse_size(text: str) -> int:
    """Bytes of `24GB`, `512M`, `16`: memory is sold in powers of two, and a bare number means GB."""
    compact = text.strip().lower().replace("ib", "").removesuffix("b")
    unit = compact[-1:] if compact[-1:] in ("k", "m", "g", "t") else ""
    try:
        number = float(compact.removesuffix(unit))
    except ValueError:
        raise InvalidInput(f"{text!r} is no size", "Write for example 24GB or 512MB") from None
    size = number * (_UNITS[unit] if unit else GIB)
    if not 0 < size < 1 << 60:
        raise InvalidInput(f"{text!r} is no possible size", "Write for example 24GB or 512MB")
    return int(size)


def _repacked() -> frozenset[str]:
    """Tensor types of which this processor keeps a second, reordered copy."""
    if processor() == "arm64":
        return sizes.REPACKED_ARM
    return sizes.REPACKED_X86 if "avx2" in cpu_features() or not cpu_features() else frozenset()
