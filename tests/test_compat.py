# ruff: noqa: E501 - tables
"""Which drafts may serve which targets: a table of header-only pairs, one rule each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from localspec.pairs.compat import Verdict, check, drafts_that_work
from localspec.pairs.gguf.model_info import ModelInfo
from tests.header_writer import CONTROL, F16, NORMAL, UNUSED, USER, info, vocabulary

WORDS = 1000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = WORDS, WORDS + 2
TEMPLATE = "<|im_start|>{{ messages[0].content }}<|im_end|>"
LAYER = (("blk.0.attn_q.weight", (100, 100), F16),)
BIG = (("token_embd.weight", (100, 5000), F16), *LAYER)


def model(
    change: dict[int, str] | None = None,
    more: list[str] | None = None,
    more_type: int = UNUSED,
    types: dict[int, int] | None = None,
    tensors: Any = LAYER,
    **keys: Any,
) -> ModelInfo:
    """The base vocabulary with some tokens changed and some added."""
    tokens, kinds = vocabulary(WORDS, *SPECIAL)
    for token, text in (change or {}).items():
        tokens[token] = text
    for token, kind in (types or {}).items():
        kinds[token] = kind
    tokens += more or []
    kinds += [more_type] * len(more or [])
    defaults = {
        "bos_token_id": BOS, "eos_token_id": EOS, "padding_token_id": BOS, "add_bos_token": False,
        "chat_template": TEMPLATE, "arch__context_length": 4096, "arch__block_count": 1,
    }  # fmt: skip
    return info(tokens, kinds, tensors, **{**defaults, **keys})


def target(**keys: Any) -> ModelInfo:
    return model(**{"tensors": BIG, **keys})


def pads(first: int, count: int) -> list[str]:
    return [f"[PAD{i}]" for i in range(first, first + count)]


@cache
def qwen(rows: int, generation: str) -> ModelInfo:
    """Qwen's vocabulary in shape: the same first 151 646 ids, then what each generation put there."""
    tokens = [f"t{i}" for i in range(151643)] + list(SPECIAL)
    kinds = [NORMAL] * 151643 + [CONTROL] * 3
    later = {"2": 0, "2.5": 19, "3": 23}[generation]
    tokens += [f"<|extra_{generation if i > 18 else ''}{i}|>" for i in range(later)]
    kinds += [CONTROL] * later
    tokens += pads(len(tokens), rows - len(tokens))
    kinds += [UNUSED] * (rows - len(kinds))
    size = BIG if rows == 152064 else LAYER
    return info(tokens, kinds, size, arch="qwen2", bos_token_id=151643, eos_token_id=151645, merges=("a b", "c d"))


@dataclass
class Case:
    name: str
    target: ModelInfo
    draft: ModelInfo
    kind: str
    rule: str = ""
    severity: str = ""
    words: tuple[str, ...] = ()
    masked: int | None = 0
    shown: dict[int, tuple[str, str, str, str]] = field(default_factory=dict)


SIZE = WORDS + 3
CASES = [
    Case("the same vocabulary", target(), model(), "identical"),
    Case("152064 against 151936", qwen(152064, "2.5"), qwen(151936, "2.5"), "identical", "rows", "note",
         ("128 padding rows", "152,064")),
    Case("a gap of 129 padding rows", target(more=pads(SIZE, 129)), model(), "shared", "rows", "note",
         ("129 padding rows", "llama.cpp itself would refuse")),
    Case("a wider draft", target(), model(more=pads(SIZE, 200)), "shared", "rows", "note", ("200 padding",), 200),
    Case("a real token in the gap", target(more=["<|tool|>"], more_type=CONTROL), model(), "shared", "rows", "warning",
         ("only the target has '<|tool|>'",), 0, {SIZE: ("'<|tool|>'", "control", "", "")}),
    Case("real tokens in a wider draft", target(), model(more=["<a>", "<b>"], more_type=USER), "shared", "rows", "warning",
         ("only the draft has '<a>', '<b>'",), 2, {SIZE: ("", "", "'<a>'", "user-defined")}),
    Case("one odd id", target(), model(change={139: "odd\x1b"}), "shared", "token_texts", "warning",
         ("1 id of 1,003 differs", "masked in the draft"), 1, {139: ("'w139'", "normal", "'odd\\x1b'", "normal")}),
    Case("one id of another type", target(), model(types={7: USER}), "shared", "token_types", "note",
         ("1 id of the same text has another type, as 'w7'",), 0, {7: ("'w7'", "normal", "'w7'", "user-defined")}),
    Case("Qwen2 with Qwen2.5", qwen(152064, "2.5"), qwen(151936, "2"), "shared", "token_texts", "note",
         ("19 ids of 151,936 differ, 19 of them padding",), 19),
    Case("Qwen2.5 with Qwen3", qwen(152064, "3"), qwen(151936, "2.5"), "shared", "token_texts", "note",
         ("4 ids of 151,936 differ, 4 of them padding",), 4),
    Case("Qwen3 with Qwen2", qwen(151936, "2"), qwen(151936, "3"), "shared", "token_texts", "note", ("23 ids",), 23),
    Case("exactly 1 % differ", target(), model(change={i: f"x{i}" for i in range(10)}), "shared", "token_texts", "warning",
         ("10 ids",), 10),
    Case("more than 1 % differ", target(), model(change={i: f"x{i}" for i in range(11)}), "refused", "token_texts", "refused",
         ("11 of 1,003", "99% overlap"), None),
    Case("79 % overlap", target(), model(change={i: f"x{i}" for i in range(210)}), "refused", "token_texts", "refused",
         ("79% overlap is not enough",), None),
    Case("another kind of tokenizer", target(), model(model="llama"), "refused", "tokenizer", "refused",
         ("different kinds",), None),
    Case("no vocabulary in the draft", target(), info([], [], LAYER, merges=()), "refused", "tokenizer", "refused",
         ("the draft file carries no vocabulary",), None),
    Case("another pre-tokenizer", target(), model(pre="llama-bpe"), "identical", "pre_tokenizer", "warning", ("may accept less",)),
    Case("other merges", target(), model(merges=("a b", "c d")), "identical", "merges", "warning", ("may accept less",)),
    Case("other scores", target(scores=(1.0,)), model(scores=(2.0,)), "identical", "merges", "note", ("scores differ",)),
    Case("BOS", target(), model(bos_token_id=3), "identical", "bos", "warning", ("1000 '<|endoftext|>'", "3 'w3'")),
    Case("EOS", target(), model(eos_token_id=BOS), "identical", "eos", "note", ("1002 '<|im_end|>'", "1000 ")),
    Case("EOT", target(eot_token_id=EOS), model(), "identical", "eot", "note", ("none",)),
    Case("pad", target(), model(padding_token_id=5), "identical", "pad", "note", ("5 'w5'", "harmless")),
    Case("add-BOS", target(add_bos_token=True), model(), "identical", "add_bos", "warning", ("yes", "no", "would refuse")),
    Case("add-EOS", target(), model(add_eos_token=True), "identical", "add_eos", "warning", ("not stated", "yes")),
    Case("EOG", target(), model(types={EOS: USER, BOS: NORMAL}), "shared", "eog", "note", ("<|endoftext|>",)),
    Case("a control token of the template", target(), model(change={WORDS + 1: "<|start|>"}), "shared", "template_tokens",
         "warning", ("'<|im_start|>'", "accept less in chat"), 1),
    Case("no template", target(chat_template=""), model(), "identical", "template", "note", ("no chat template",)),
    Case("a shorter context", target(), model(arch__context_length=2048), "identical", "context", "note", ("beyond 2,048",)),
    Case("swapped", model(), target(), "identical", "swapped", "stop", ("draft is larger than target; swap them",)),
    Case("a draft as large as its target", target(), target(), "identical", "cost", "warning", ("unlikely to pay", "100%")),
    Case("EAGLE-3 head", target(), model(arch="eagle3"), "refused", "architecture", "refused", ("an EAGLE-3 head",)),
    Case("MTP head", target(), model(arch="qwen35", arch__nextn_predict_layers=1), "refused", "architecture", "refused",
         ("an MTP head",)),
    Case("assistant head", target(), model(arch="gemma4_assistant"), "refused", "architecture", "refused", ("assistant head",)),
    Case("image encoder", target(), model(arch="clip"), "refused", "architecture", "refused", ("mmproj",)),
    Case("LoRA adapter", target(), model(general__type="adapter"), "refused", "architecture", "refused", ("a LoRA adapter",)),
    Case("text encoder as target", target(arch="bert"), model(), "refused", "architecture", "refused", ("the target is a text",)),
    Case("another architecture", target(arch="qwen35moe"), model(arch="qwen35"), "identical"),
    Case("embedded MTP layers do not matter", target(arch="qwen35", arch__block_count=2, arch__nextn_predict_layers=1), model(),
         "identical", "architecture", "ok"),
    Case("recurrent target with rewind slots",
         target(arch="qwen35", arch__ssm__inner_size=64, arch__ssm__state_size=16, arch__ssm__conv_kernel=4), model(),
         "identical", "rewind", "note", ("rewind slots (0.0 MiB a guess)",)),
    Case("recurrent target without", target(arch="mamba", arch__ssm__inner_size=64, arch__ssm__state_size=16), model(),
         "refused", "rewind", "refused", ("no rewind slots", "mamba")),
    Case("recurrent draft", target(), model(arch="qwen35", arch__ssm__inner_size=64, arch__ssm__state_size=16),
         "identical", "rewind", "stop", ("recurrent state",)),
]  # fmt: skip


def reason(verdict: Verdict, rule: str) -> Any:
    return next(found for found in verdict.rules if found.rule == rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts(case: Case) -> None:
    verdict = check(case.target, case.draft)
    assert verdict.kind == case.kind, verdict.reasons
    assert len(verdict.rules) == 20  # every rule speaks, whatever the first one found
    if case.rule:
        found = reason(verdict, case.rule)
        assert found.severity == case.severity
        for words in case.words:
            assert words in f"{found.target} | {found.draft} | {found.detail}"
    if case.masked is not None:
        assert verdict.masked == case.masked
    shown = {d.id: (d.target_text, d.target_type, d.draft_text, d.draft_type) for d in verdict.first_differences}
    assert case.shown.items() <= shown.items()


def test_the_masked_ids_are_listed() -> None:
    verdict = check(qwen(152064, "2.5"), qwen(151936, "2"))
    assert verdict.masked_ids == tuple(range(151646, 151665))
    assert verdict.shared_rows == 151936 and verdict.masked_beyond == 0
    assert [d.id for d in verdict.first_differences] == list(range(151646, 151654))
    assert verdict.first_differences[0].draft_text == "'[PAD151646]'"


def test_mixture_of_experts_counts_what_runs() -> None:
    experts = (("blk.0.ffn_up_exps.weight", (2_000_000, 17, 1000), F16), ("blk.0.attn_q.weight", (1000, 800_000), F16))
    moe = target(arch="qwen3moe", arch__expert_count=128, arch__expert_used_count=8, tensors=experts)
    large, small = (model(tensors=(("x", (1000, size), F16),)) for size in (1_500_000, 500_000))
    found = reason(check(moe, large), "cost")
    assert (found.severity, found.target) == ("warning", "34.8 B, 2.9 B active")
    assert found.detail == "unlikely to pay: a guess costs about 51% of a target token"
    assert reason(check(moe, small), "cost").detail == "maybe: a guess costs about 17% of a target token"


def test_drafts_that_work_are_smaller_and_compatible() -> None:
    good, odd, foreign = model(), model(change={5: "odd"}), model(model="llama")
    found = drafts_that_work(target(), [foreign, target(), odd, good])
    assert [verdict.kind for _, verdict in found] == ["shared", "identical"]


def test_two_large_vocabularies_take_a_moment() -> None:
    a, b = qwen(152064, "3"), qwen(151936, "2")
    for one in (a, b):
        one.tokens.__dict__.pop("texts", None)
    before = time.process_time()
    assert check(a, b).kind == "shared"
    assert time.process_time() - before < 3
