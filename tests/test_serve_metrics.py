"""/metrics: the text format itself, what is counted, and what a real Prometheus parser makes of it."""

from __future__ import annotations

import math
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from prometheus_client.parser import text_string_to_metric_families

from tests.serve_tools import Live, ScriptedEngine, serving, until

THE_SIX = {
    "spec_dec_draft_tokens_total": "counter",
    "spec_dec_accepted_tokens_total": "counter",
    "spec_dec_acceptance_rate": "gauge",
    "spec_dec_tokens_per_step": "gauge",
    "spec_dec_draft_latency_seconds": "histogram",
    "spec_dec_verify_latency_seconds": "histogram",
}


def samples(live: Live) -> dict[str, float]:
    """Plain samples by name and labels."""
    lines = [line for line in live.get("/metrics").body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_what_is_counted() -> None:
    with serving(ScriptedEngine()) as live:
        assert math.isnan(samples(live)["spec_dec_acceptance_rate"])
        answers = [live.chat("a b c", max_tokens=10).json, live.chat("a b", max_tokens=5).json]
        live.chat(max_tokens=0)
        now = samples(live)
    stats = [answer["speculative"] for answer in answers]
    verified, accepted = (sum(s[key] for s in stats) for key in ("verified", "accepted"))
    assert now["spec_dec_draft_tokens_total"] == verified == 16
    assert now["spec_dec_accepted_tokens_total"] == accepted == 7
    assert now["spec_dec_acceptance_rate"] == pytest.approx(accepted / verified)
    assert now["spec_dec_tokens_per_step"] == pytest.approx(15 / 8)
    assert now["spec_dec_draft_latency_seconds_count"] == now["spec_dec_verify_latency_seconds_count"] == 8
    assert now["spec_dec_verify_latency_seconds_sum"] == pytest.approx(0.016)
    assert now["localspec_prompt_tokens_total"] == 5 and now["localspec_generation_tokens_total"] == 15
    names = "localspec_spec_decode_num_"
    assert now[f"{names}drafts_total"] == 8
    assert (now[f"{names}draft_tokens_total"], now[f"{names}accepted_tokens_total"]) == (16, 7)
    assert now[names + 'draft_tokens_per_pos_total{position="1"}'] == 8
    assert now[names + 'accepted_tokens_per_pos_total{position="0"}'] == 7
    assert now['localspec_requests_total{path="/v1/chat/completions",status="200"}'] == 2
    assert now['localspec_requests_total{path="/v1/chat/completions",status="400"}'] == 1
    assert now['localspec_answers_total{reason="length"}'] == 2
    assert now["localspec_time_to_first_token_seconds_count"] == now["localspec_queue_seconds_count"] == 2
    assert now["localspec_time_per_output_token_seconds_count"] == 2
    assert now["localspec_speculation_on"] == 1
    assert now['localspec_resident_memory_bytes{process="server"}'] > 1e6


def test_names_types_and_help_stay() -> None:
    """Dashboards of others name them. A server that has done nothing lists them all, in this order."""
    golden = Path(__file__).parent / "golden" / "metrics.txt"
    with serving(ScriptedEngine()) as live:
        lines = live.get("/metrics").body.decode().splitlines()
    assert [line for line in lines if line.startswith("#")] == golden.read_text().splitlines()


def test_paths_that_clients_invent_make_no_series() -> None:
    with serving(ScriptedEngine()) as live:
        for number in range(20):
            live.get(f"/invented/{number}")
        paths = {match for match in re.findall(r'path="([^"]*)"', live.get("/metrics").body.decode())}
        assert paths <= {"other", "/metrics"}


def test_counters_never_go_back_while_answers_are_made() -> None:
    engine = ScriptedEngine(pace=0.001)
    with serving(engine) as live:
        threads = [threading.Thread(target=live.chat, kwargs={"max_tokens": 200}) for _ in range(3)]
        for thread in threads:
            thread.start()
        before = samples(live)
        running = 0.0
        while any(thread.is_alive() for thread in threads):
            now = samples(live)
            running = max(running, now["localspec_requests_running"])
            for name, value in before.items():
                if re.search(r"_(total|bucket|count|sum)(\{|$)", name):
                    assert now[name] >= value, name
            before = now
        until(lambda: samples(live)["localspec_requests_running"] == 0)
        assert running == 1
        assert samples(live)["localspec_generation_tokens_total"] == 600


def test_a_real_parser_reads_every_family() -> None:
    with serving(ScriptedEngine()) as live:
        live.chat(max_tokens=5)
        page = live.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(page.body.decode())}
    for name, kind in THE_SIX.items():
        assert families[name.removesuffix("_total")].type == kind
    for family in families.values():
        assert family.documentation and family.samples and family.type != "unknown", family.name
    buckets = [s for s in families["spec_dec_draft_latency_seconds"].samples if s.name.endswith("_bucket")]
    assert buckets[-1].labels["le"] == "+Inf"
    assert [b.value for b in buckets] == sorted(b.value for b in buckets)
