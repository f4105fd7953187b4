"""What a finished run leaves with the pair: the short form that lists, the start of a chat and `tune` read."""

from __future__ import annotations

from typing import Any

from localspec.bench.headline import main_rows, pooled_row
from localspec.bench.records import POOLED, BenchRun, Report, Row
from localspec.engine.settings import LoadSettings
from localspec.session import verdicts


def bench_record(run: BenchRun, report: Report, settings: LoadSettings) -> dict[str, Any]:
    """For `verdicts.store(bench=...)`; {} when the run says nothing about drafts."""
    pooled = pooled_row(report.rows)
    if pooled is None or pooled.speedup is None:
        return {}
    return {
        **_figures(pooled),
        "verdict": pooled.verdict,
        "doubtful": any(flag.blocks for flag in pooled.flags),
        "conditions": verdicts.conditions(settings),
        "recommended": report.recommended,
        "headline": report.headline,
        "kinds": {row.kind: {**_figures(row), "verdict": row.verdict} for row in main_rows(report.rows)},
        "quick": bool(run.settings.get("quick")),
        "acceptance_rate": pooled.acceptance_rate,
        "mean_acceptance_length": pooled.mean_acceptance_length,
    }


def profile_record(report: Report) -> dict[str, Any]:
    """For `verdicts.store(profile=...)`: what a sweep showed. `best_length` 0 = no fixed length was faster."""
    best = [row.speedup.value for row in report.rows if row.stage == "sweep" and row.speedup is not None]
    knee = report.knee.get(POOLED) or min(report.knee.values(), default=0)
    return {
        "best_length": knee if best and max(best) > 1.0 else 0,
        "knee": dict(report.knee),
        "verify_seconds": {str(point.rows): point.seconds for point in report.curve},
        "draft_step_seconds": report.draft_step_seconds,
    }


def _figures(row: Row) -> dict[str, float | None]:
    assert row.speedup is not None
    return {"speedup": row.speedup.value, "low": row.speedup.low, "high": row.speedup.high}
