"""The ready Grafana dashboard and the scrape example agree with what /metrics really has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from localspec.cli.serve import DEFAULT_PORT
from tests.serve_tools import ScriptedEngine, serving

PACKAGING = Path(__file__).parent.parent / "packaging"
DASHBOARD = PACKAGING / "grafana" / "dashboard.json"
THE_SIX = {"draft_tokens_total", "accepted_tokens_total", "draft_latency_seconds", "verify_latency_seconds"}


def test_every_query_of_the_dashboard_names_metrics_that_exist() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    with serving(ScriptedEngine()) as live:
        live.chat(max_tokens=4)
        known = set(re.findall(r"^# TYPE (\S+)", live.get("/metrics").body.decode(), re.MULTILINE))
    used: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"\b((?:localspec|spec_dec)_\w+)(?=\{)", target["expr"]))
            assert names, target["expr"]
            used |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
            assert target["expr"].count("(") == target["expr"].count(")")
    assert used <= known, used - known
    assert {f"spec_dec_{name}" for name in THE_SIX} <= used


def test_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


def test_the_scrape_example_points_at_the_default_port() -> None:
    text = (PACKAGING / "prometheus" / "scrape.yml").read_text("utf-8")
    assert f'targets: ["127.0.0.1:{DEFAULT_PORT}"]' in text and "metrics_path: /metrics" in text
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(text)["scrape_configs"][0]
    assert job["job_name"] == "localspec"
