"""Pairs on this disk and in the catalog, as lists for people."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.ground.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.pairs.store.cleanup import Removal


_GB_PER_PROCESSOR = 0.75
"""Of a model file, for an answer that comes about as fast as it is read."""


@dataclass(frozen=True, slots=True)
class InstalledPair:
    """One row."""

    name: str
    draft: str
    state: str
    size: int
    """Bytes."""
    verdict: str
    fits: str
    """`yes`, or what is lacking, or "" when it was not worked out."""
    speedups: str
    """Measured, by kind of text where that is known."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model that can be pulled."""

    name: str
    draft: str
    quants: str
    """Each with its size."""
    fits: bool
    """Whether its smallest file is smaller than this machine's memory."""
    why: str


def installed_pairs() -> list[InstalledPair]:
    """Everything in the store."""
    from localspec.pairs.store.store import Store
    from localspec.session import verdicts

    found = []
    for name, lock in Store().names():
        draft = lock.draft.name if lock.draft else "–"
        fits = _fits(lock.size)
        measured = verdicts.figures([model.paths() for model in lock.models])
        found.append(
            InstalledPair(name, draft, lock.state_text(), lock.size, lock.verdict or "–", fits, _speedups(measured))
        )
    return found


def catalog_entries() -> list[CatalogEntry]:
    """What can be pulled by name, those that fit here first."""
    from localspec.ground.machine import total_memory
    from localspec.pairs.names.catalog import load_catalog

    memory = total_memory()
    entries = []
    for model in load_catalog().search():
        sizes = [f"{quant} {gb:g} GB" for quant, gb in model.gb.items()]
        smallest = min(model.gb.values(), default=0.0)
        entries.append(
            CatalogEntry(
                name=model.name,
                draft=model.drafts[0] if model.drafts else "–",
                quants=", ".join(sizes),
                fits=smallest * 1e9 < memory * 0.9,
                why=model.why,
            )
        )
    entries.sort(key=lambda entry: not entry.fits)
    return entries


def check_report(pair: str) -> str:
    """What `localspec check` prints."""
    from localspec.pairs import compat
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.names import resolve
    from localspec.pairs.store.drafts_here import would_work
    from localspec.reports.compat import write_report

    files = resolve.find_pair(pair)
    if not files.draft_files:
        return f"no draft model: {files.why_no_draft or 'none is known'}"
    models = (read_model(files.target_files), read_model(files.draft_files))
    verdict = compat.check(*models)
    works = would_work(models[0], files) if verdict.kind == "refused" or verdict.stopped else []
    out = io.StringIO()
    write_report(out, models, verdict, works, False)
    return out.getvalue()


def fit_report(pair: str) -> str:
    """What `localspec fit` prints."""
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.memory.fit_records import Wish
    from localspec.pairs.names import resolve
    from localspec.reports.fit import write_plan
    from localspec.session import memory_plan

    files = resolve.find_pair(pair)
    target = read_model(files.target_files)
    draft = read_model(files.draft_files) if files.draft_files else None
    out = io.StringIO()
    write_plan(out, memory_plan.plan_pair(target, draft, memory_plan.this_machine(), Wish()), target, draft)
    return out.getvalue()


def removal_plan(pair: str) -> tuple[str, Removal]:
    """What removing would delete, in words, and the plan for `remove_pair`."""
    from localspec.pairs.store.cleanup import plan_removal
    from localspec.pairs.store.store import Store
    from localspec.reports.transfer import size

    store = Store()
    removal = plan_removal(store.get(pair), store)
    lines = [f"delete  {path.name}" for path in removal.files if path.exists()]
    lines += [f"keep    {path.name}" for path in removal.kept]
    return "\n".join([*lines, f"{size(removal.size)} will be free"]), removal


def remove_pair(removal: Removal) -> None:
    """Carry out a `removal_plan`."""
    from localspec.pairs.store.cleanup import remove
    from localspec.pairs.store.store import Store

    remove(removal, Store())


def machine_summary() -> str:
    """Two lines about this machine."""
    from localspec.ground import machine

    gib = 1 << 30
    return (
        f"{machine.usable_cpus()} processors, {machine.total_memory() / gib:.1f} GiB of memory, "
        f"{machine.available_memory() / gib:.1f} GiB free"
    )


def recommended_pair() -> CatalogEntry | None:
    """The largest catalog model with a draft that this machine's memory and processors can carry."""
    from localspec.ground.machine import total_memory, usable_cpus
    from localspec.pairs.names.catalog import load_catalog

    limit = min(total_memory() * 0.6 / 1e9, usable_cpus() * _GB_PER_PROCESSOR)
    best, best_gb = None, 0.0
    for model in load_catalog().search():
        gb = min(model.gb.values(), default=0.0)
        if model.drafts and not model.gated and best_gb < gb <= limit:
            best, best_gb = model, gb
    if best is None:
        return None
    sizes = ", ".join(f"{quant} {gb:g} GB" for quant, gb in best.gb.items())
    return CatalogEntry(best.name, best.drafts[0], sizes, True, best.why)


def demo_model() -> Path | None:
    """The small model that comes as a package, if it is installed."""
    from localspec.pairs.names.demo_model import carried_model

    try:
        return carried_model()
    except LocalspecError:
        return None


def _fits(size: int) -> str:
    from localspec.ground.machine import total_memory

    return "yes" if size < total_memory() * 0.9 else "larger than this machine's memory"


def _speedups(profile: Any) -> str:
    kinds = profile.get("kinds")
    if isinstance(kinds, dict) and kinds:
        shown = [f"{kind} {value:.2f}x" for kind, value in kinds.items() if isinstance(value, int | float)]
        if shown:
            return ", ".join(shown)
    value = profile.get("speedup")
    return f"{value:.2f}x" if isinstance(value, int | float) else "not measured"
