"""What a server has counted of its drafts: vLLM's names in /metrics, which llama-server and localspec serve use too."""

from __future__ import annotations

import re

Counters = dict[str, float]
"""`drafts`, `draft_tokens`, `accepted_tokens`, and `kept 0`, `kept 1`, ... by draft position, since the server started;
empty where it offers none."""

_COUNTER = re.compile(
    r"^[A-Za-z_:]*spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)(?:_total)?"
    r"(\{[^}]*\})?\s+([0-9.eE+]+)\s*$",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d+)"')


def read_counters(page: str) -> Counters:
    """The sums over all models of what stands in a page of metrics."""
    counters: Counters = {}
    for name, labels, value in _COUNTER.findall(page):
        position = _POSITION.search(labels)
        key = f"kept {position[1]}" if position else name
        counters[key] = counters.get(key, 0.0) + float(value)
    return counters
