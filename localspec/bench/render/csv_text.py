"""One line an answer, for spreadsheets."""

from __future__ import annotations

import csv
import io

from localspec.bench.records import BenchRun

COLUMNS = (
    "index", "start", "block", "stage", "kind", "prompt", "arm", "temperature", "depth", "at_seconds",
    "tokens_per_second", "emitted", "prompt_tokens", "reused_tokens", "ttft_seconds", "wall_seconds", "finish",
    "drafted", "verified", "accepted", "target_passes", "text_hash", "memory_bytes", "error",
)  # fmt: skip


def csv_report(run: BenchRun) -> str:
    """Every sample; undefined rates are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for sample in run.samples:
        cell, measured = sample.cell, sample.measured
        rate = measured.rate
        writer.writerow([
            cell.index, cell.start, cell.block, cell.stage, _safe(cell.kind), _safe(cell.prompt), _safe(cell.arm),
            cell.temperature, cell.depth, f"{sample.at:.3f}", "" if rate is None else f"{rate:.4f}",
            measured.emitted, measured.prompt_tokens, measured.reused_tokens, f"{measured.ttft_seconds:.4f}",
            f"{measured.wall_seconds:.4f}", measured.finish, measured.drafted, measured.verified,
            measured.accepted, measured.target_passes, measured.text_hash, measured.memory_bytes,
            _safe(measured.error),
        ])  # fmt: skip
    return out.getvalue()


def _safe(text: str) -> str:
    """A spreadsheet runs what begins with these signs."""
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text
