"""May this draft serve this target? Every rule, every reason.

A draft is useful when its token ids mean what the target's mean. Ids that do not are masked: the draft never
proposes them, and the output stays the target's. So a verdict concerns ids alone (`identical`, `shared`,
`refused`); templates, context and cost are reasons beside it. Works on headers, before any weights are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from localspec.pairs import kinds
from localspec.pairs.model_info import CONTROL, ModelInfo
from localspec.terminal import one_line

Kind = Literal["identical", "shared", "refused"]
Severity = Literal["ok", "note", "warning", "stop", "refused"]
"""`stop`: not a matter of ids, but nobody wants to run it (swapped models). `refused`: it cannot work."""

LLAMA_CPP_GAP = 128
"""llama.cpp refuses pairs whose vocabularies differ by more rows than this."""
MAX_DIFFERING = 0.01
"""Share of the common ids that may have different texts, padding rows apart."""
UNLIKELY_TO_PAY = 1 / 3
MAY_PAY = 1 / 10
SHOWN = 8
"""Differing ids that a verdict spells out."""

_PADDING = re.compile(rb"\[PAD\d*\]|<pad>|<\|?(?:unused|reserved|extra|dummy|placeholder)[a-z_]*[-_]?\d*\|?>")
_UNUSED = 5
_YES_NO = {None: "not stated", True: "yes", False: "no"}
TOKEN_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user-defined", 5: "unused", 6: "byte"}


@dataclass(frozen=True, slots=True)
class Reason:
    """What one rule found."""

    rule: str
    severity: Severity
    target: str
    """The target's value, as text for people; "" where the rule concerns the pair."""
    draft: str
    detail: str
    """One sentence: what this means."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One id that the two vocabularies do not share."""

    id: int
    target_text: str
    """Escaped; "" when the vocabulary ends before this id."""
    target_type: str
    draft_text: str
    draft_type: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a draft may serve a target, and everything a person may want to know about it."""

    kind: Kind
    rules: tuple[Reason, ...]
    """Every rule's finding, those that are in order included."""
    masked_ids: tuple[int, ...]
    """Ids below `shared_rows` whose texts differ, ascending: never proposed."""
    shared_rows: int
    """Ids at and above this number do not exist in both vocabularies: never proposed."""
    masked_beyond: int
    """Ids of the draft at and above `shared_rows`."""
    differing: int
    """Ids below `shared_rows` whose text or type differs."""
    first_differences: tuple[Difference, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The findings that are not simply in order."""
        return tuple(reason for reason in self.rules if reason.severity != "ok")

    @property
    def masked(self) -> int:
        """How many ids the draft may not propose."""
        return len(self.masked_ids) + self.masked_beyond

    @property
    def swapped(self) -> bool:
        """The draft is the larger model: stop unless told otherwise."""
        return any(reason.rule == "swapped" and reason.severity == "stop" for reason in self.rules)

    def worst(self) -> Reason | None:
        """The finding that decides: a refusal, else a stop, else the first warning."""
        order = ("refused", "stop", "warning")
        found = [reason for reason in self.rules if reason.severity in order]
        return min(found, key=lambda reason: order.index(reason.severity), default=None)


def check(target: ModelInfo, draft: ModelInfo) -> Verdict:
    """Compare two headers by every rule. About 0.1 s for vocabularies of 152 000 tokens that differ."""
    pair = _Pair(target, draft)
    rules = tuple(rule(pair) for rule in RULES)
    if any(reason.severity == "refused" for reason in rules):
        kind: Kind = "refused"
    elif pair.differing or pair.gap > LLAMA_CPP_GAP or pair.real_in_gap:
        kind = "shared"
    else:
        kind = "identical"
    return Verdict(
        kind=kind,
        rules=rules,
        masked_ids=tuple(pair.text_differs),
        shared_rows=pair.rows,
        masked_beyond=max(0, len(draft.tokens) - pair.rows),
        differing=len(pair.differing),
        first_differences=tuple(map(pair.difference, [*pair.differing, *pair.real_in_gap][:SHOWN])),
    )


def drafts_that_work(target: ModelInfo, candidates: Iterable[ModelInfo]) -> list[tuple[ModelInfo, Verdict]]:
    """Those of `candidates` that may serve `target` and are smaller, the smallest first."""
    verdicts = [(draft, check(target, draft)) for draft in candidates if draft.parameters < target.parameters]
    working = [(draft, verdict) for draft, verdict in verdicts if verdict.kind != "refused"]
    return sorted(working, key=lambda found: found[0].active_parameters)


class _Pair:
    """Two headers and what several rules want to know about both."""

    def __init__(self, target: ModelInfo, draft: ModelInfo) -> None:
        self.target, self.draft = target, draft
        self.rows = min(len(target.tokens), len(draft.tokens))

    def both(self, said: Callable[[ModelInfo], str]) -> tuple[str, str]:
        """The same question asked of both."""
        return said(self.target), said(self.draft)

    @property
    def gap(self) -> int:
        return abs(len(self.target.tokens) - len(self.draft.tokens))

    @cached_property
    def text_differs(self) -> list[int]:
        """Common ids with different texts."""
        if self.target.tokens == self.draft.tokens:
            return []
        a, b = self.target.tokens.texts, self.draft.tokens.texts
        if a[: self.rows] == b[: self.rows]:
            return []
        return [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]

    @cached_property
    def type_differs(self) -> list[int]:
        """Common ids with different types, where both files state types."""
        a, b = self.target.token_types[: self.rows], self.draft.token_types[: self.rows]
        if not a or not b or a == b:
            return []
        return [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]

    @cached_property
    def differing(self) -> list[int]:
        return sorted({*self.text_differs, *self.type_differs})

    @cached_property
    def really_differs(self) -> list[int]:
        """Common ids that stand for different text, not counting rows that only fill the matrix up."""
        both = (self.target, self.draft)
        return [i for i in self.text_differs if not any(_is_padding(info, i) for info in both)]

    @cached_property
    def real_in_gap(self) -> list[int]:
        """Ids beyond the smaller vocabulary that are no padding."""
        longer = self.longer
        return [i for i in range(self.rows, len(longer.tokens)) if not _is_padding(longer, i)]

    @property
    def longer(self) -> ModelInfo:
        return self.target if len(self.target.tokens) >= len(self.draft.tokens) else self.draft

    def difference(self, token: int) -> Difference:
        return Difference(token, *_described(self.target, token), *_described(self.draft, token))


Rule = Callable[[_Pair], Reason]


# --- the rules ----------------------------------------------------------------------------------------


def _architecture(pair: _Pair) -> Reason:
    target, draft = kinds.describe(pair.target), kinds.describe(pair.draft)
    values = (f"{pair.target.architecture} ({target})", f"{pair.draft.architecture} ({draft})")
    if target != kinds.MODEL:
        return Reason("architecture", "refused", *values, f"the target is {_a(target)}, not a language model")
    if draft != kinds.MODEL:
        detail = f"the draft is {_a(draft)}, not a language model; it cannot guess without its target"
        return Reason("architecture", "refused", *values, detail)
    return Reason("architecture", "ok", *values, "both are language models")


def _rewind(pair: _Pair) -> Reason:
    values = pair.both(lambda info: "recurrent" if info.recurrent else "attention")
    if pair.target.recurrent:
        price = kinds.state_bytes(pair.target)
        cost = f" ({price / 2**20:.1f} MiB a guess)" if price else ""
        if pair.target.architecture in kinds.REWIND_SLOTS:
            detail = f"rejected guesses are taken back through rewind slots{cost}"
            return Reason("rewind", "note", *values, detail)
        detail = f"libllama cannot take guesses back in {pair.target.architecture}: it has no rewind slots"
        return Reason("rewind", "refused", *values, detail)
    if pair.draft.recurrent:
        detail = "the draft keeps a recurrent state; taking guesses back costs it extra passes"
        return Reason("rewind", "warning", *values, detail)
    return Reason("rewind", "ok", *values, "rejected guesses can be taken back")


def _tokenizer(pair: _Pair) -> Reason:
    values = (pair.target.tokenizer_model or "none", pair.draft.tokenizer_model or "none")
    if not pair.rows:
        which = "target" if not len(pair.target.tokens) else "draft"
        return Reason("tokenizer", "refused", *values, f"the {which} file carries no vocabulary")
    if values[0] != values[1]:
        return Reason("tokenizer", "refused", *values, "the two use different kinds of tokenizer")
    return Reason("tokenizer", "ok", *values, "the same kind of tokenizer")


def _pre_tokenizer(pair: _Pair) -> Reason:
    values = (pair.target.tokenizer_pre or "not stated", pair.draft.tokenizer_pre or "not stated")
    if values[0] == values[1]:
        return Reason("pre_tokenizer", "ok", *values, "text is cut up in the same way")
    detail = "the draft learnt text cut up differently; it may accept less, the output is unaffected"
    return Reason("pre_tokenizer", "warning", *values, detail)


def _rows(pair: _Pair) -> Reason:
    values = (f"{len(pair.target.tokens):,}", f"{len(pair.draft.tokens):,}")
    if not pair.gap:
        return Reason("rows", "ok", *values, "as many tokens")
    if not pair.rows:
        return Reason("rows", "ok", *values, "nothing to compare")
    if pair.real_in_gap:
        named = ", ".join(_described(pair.longer, i)[0] for i in pair.real_in_gap[:3])
        more = f" and {len(pair.real_in_gap) - 3:,} more" if len(pair.real_in_gap) > 3 else ""
        side = "target" if pair.longer is pair.target else "draft"
        detail = f"only the {side} has {named}{more}; the draft never proposes what both do not have"
        return Reason("rows", "warning", *values, detail)
    if pair.gap > LLAMA_CPP_GAP:
        detail = f"{pair.gap:,} padding rows apart; masked here, llama.cpp itself would refuse the pair"
        return Reason("rows", "note", *values, detail)
    return Reason("rows", "note", *values, f"{pair.gap:,} padding rows apart, which carry no text")


def _texts(pair: _Pair) -> Reason:
    rule = "token_texts"
    if not pair.text_differs:
        return Reason(rule, "ok", "", "", f"all {pair.rows:,} common ids have the same text")
    first = pair.difference(pair.text_differs[0])
    values = (f"id {first.id}: {first.target_text}", f"id {first.id}: {first.draft_text}")
    count, real = len(pair.text_differs), len(pair.really_differs)
    share = real / pair.rows
    if share > MAX_DIFFERING:
        same = 1 - count / pair.rows
        detail = f"{count:,} of {pair.rows:,} common ids differ in text: {same:.0%} overlap is not enough"
        return Reason(rule, "refused", *values, detail)
    padding = f", {count - real:,} of them padding" if count > real else ""
    detail = f"{_ids(count)} of {pair.rows:,} differ{'s' if count == 1 else ''}{padding}; masked in the draft"
    return Reason(rule, "note" if not real else "warning", *values, detail)


def _types(pair: _Pair) -> Reason:
    only = sorted(set(pair.type_differs) - set(pair.text_differs))
    if not only:
        return Reason("token_types", "ok", "", "", "ids with the same text have the same type")
    first = pair.difference(only[0])
    values = (f"id {first.id}: {first.target_type}", f"id {first.id}: {first.draft_type}")
    have = "has" if len(only) == 1 else "have"
    detail = f"{_ids(len(only))} of the same text {have} another type, as {first.target_text}"
    return Reason("token_types", "note", *values, detail)


def _merges(pair: _Pair) -> Reason:
    target, draft = pair.target, pair.draft
    merges = (target.merges_digest[:8] or "none", draft.merges_digest[:8] or "none")
    if target.merges_digest != draft.merges_digest:
        detail = "the draft learnt text split into other ids; it may accept less, the output is unaffected"
        return Reason("merges", "warning", *merges, detail)
    scores = (target.scores_digest[:8] or "none", draft.scores_digest[:8] or "none")
    if target.scores_digest != draft.scores_digest:
        return Reason("merges", "note", *scores, "the vocabularies' scores differ; the output is unaffected")
    return Reason("merges", "ok", *merges, "text becomes the same ids")


def _special(rule: str, name: str, consequence: str, severity: Severity = "warning") -> Rule:
    """A rule that one of the special ids is the same."""

    def compare(pair: _Pair) -> Reason:
        values = pair.both(lambda info: _token(info, getattr(info, name)))
        if getattr(pair.target, name) == getattr(pair.draft, name):
            return Reason(rule, "ok", *values, "the same")
        return Reason(rule, severity, *values, consequence)

    return compare


def _flags(rule: str, name: str, consequence: str) -> Rule:
    """A rule that one of the yes/no settings of the tokenizer is the same; not stated counts as no."""

    def compare(pair: _Pair) -> Reason:
        values = pair.both(lambda info: _YES_NO[getattr(info, name)])
        if bool(getattr(pair.target, name)) == bool(getattr(pair.draft, name)):
            return Reason(rule, "ok", *values, "the same")
        return Reason(rule, "warning", *values, consequence)

    return compare


def _end_tokens(pair: _Pair) -> Reason:
    values = pair.both(lambda info: _listed(info, info.eog_ids))
    if pair.target.eog_ids == pair.draft.eog_ids:
        return Reason("eog", "ok", *values, "the same tokens end an answer")
    detail = "the target's set ends answers; the draft may guess past it for a few tokens"
    return Reason("eog", "note", *values, detail)


def _template_tokens(pair: _Pair) -> Reason:
    target = pair.target
    masked = set(pair.text_differs)
    missing = []
    for i, kind in enumerate(target.token_types):
        # Control tokens are few; a text is looked for only when the draft does not have it.
        if kind in (CONTROL, 4) and (i in masked or i >= pair.rows) and i < len(target.tokens):
            text = target.tokens[i].decode("utf-8", "replace")
            if text in target.chat_template:
                missing.append(i)
    if not missing:
        return Reason("template_tokens", "ok", "", "", "the draft knows the control tokens of the template")
    named = ", ".join(_described(target, i)[0] for i in missing[:4])
    detail = f"the target's template uses {named}, unknown to the draft; it will accept less in chat"
    return Reason("template_tokens", "warning", named, "", detail)


def _template(pair: _Pair) -> Reason:
    values = pair.both(lambda info: "present" if info.chat_template else "none")
    if not pair.target.chat_template:
        return Reason("template", "note", *values, "the target has no chat template; prompts go as they are")
    if pair.target.chat_template == pair.draft.chat_template:
        return Reason("template", "ok", *values, "the same chat template")
    return Reason("template", "note", *values, "the target's chat template is used for both")


def _context(pair: _Pair) -> Reason:
    lengths = (pair.target.context_length, pair.draft.context_length)
    values = pair.both(lambda info: f"{info.context_length:,}" if info.context_length else "not stated")
    if all(lengths) and lengths[1] < lengths[0]:
        detail = f"beyond {lengths[1]:,} tokens the draft was never trained and guesses worse"
        return Reason("context", "note", *values, detail)
    return Reason("context", "ok", *values, "the draft reaches as far as the target")


def _swapped(pair: _Pair) -> Reason:
    values = (_billions(pair.target.parameters), _billions(pair.draft.parameters))
    if pair.draft.parameters > pair.target.parameters:
        return Reason("swapped", "stop", *values, "draft is larger than target; swap them")
    return Reason("swapped", "ok", *values, "the draft is not the larger model")


def _cost(pair: _Pair) -> Reason:
    target, draft = pair.target, pair.draft
    values = pair.both(_size)
    ratio = _work(draft) / max(1, _work(target))
    said = f"a guess costs about {ratio:.0%} of a target token"
    if ratio > UNLIKELY_TO_PAY:
        return Reason("cost", "warning", *values, f"unlikely to pay: {said}")
    if ratio > MAY_PAY:
        return Reason("cost", "note", *values, f"maybe: {said}")
    return Reason("cost", "ok", *values, said)


RULES: tuple[Rule, ...] = (
    _architecture,
    _rewind,
    _tokenizer,
    _pre_tokenizer,
    _rows,
    _texts,
    _types,
    _merges,
    _special("bos", "bos_id", "the beginning of the target's text is fed to both; the draft expects another"),
    _flags("add_bos", "add_bos", "both are fed the target's ids; llama.cpp itself would refuse the pair"),
    _special("eos", "eos_id", "the target's end token ends answers, whatever the draft thinks", "note"),
    _flags("add_eos", "add_eos", "both are fed the target's ids; llama.cpp itself would refuse the pair"),
    _special("eot", "eot_id", "the target's end-of-turn token ends answers", "note"),
    _end_tokens,
    _special("pad", "pad_id", "harmless: neither is ever fed padding", "note"),
    _template_tokens,
    _template,
    _context,
    _swapped,
    _cost,
)


# --- words --------------------------------------------------------------------------------------------


def _is_padding(info: ModelInfo, token: int) -> bool:
    """Whether the row only fills the matrix up to a round number."""
    if token < len(info.token_types) and info.token_types[token] == _UNUSED:
        return True
    return _PADDING.fullmatch(info.tokens[token]) is not None


def _described(info: ModelInfo, token: int) -> tuple[str, str]:
    """A token's text, quoted and escaped, and the name of its type; ("", "") beyond the vocabulary."""
    if token >= len(info.tokens):
        return "", ""
    text = one_line(repr(info.tokens[token].decode("utf-8", "replace")), 60)
    kind = info.token_types[token] if token < len(info.token_types) else 0
    return text, TOKEN_TYPES.get(kind, "not stated")


def _token(info: ModelInfo, token: int | None) -> str:
    return "none" if token is None else f"{token} {_described(info, token)[0]}".strip()


def _listed(info: ModelInfo, ids: frozenset[int]) -> str:
    shown = [_token(info, token) for token in sorted(ids)[:4]]
    return ", ".join(shown) + (f" +{len(ids) - 4}" if len(ids) > 4 else "") if shown else "none"


def _ids(count: int) -> str:
    return f"{count:,} id" + ("" if count == 1 else "s")


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _size(info: ModelInfo) -> str:
    if info.experts:
        return f"{_billions(info.parameters)}, {_billions(info.active_parameters)} active"
    return _billions(info.parameters)


def _work(info: ModelInfo) -> int:
    """Weights that one token is multiplied with: a separate embedding table is only looked up."""
    names = {tensor.name: tensor.elements for tensor in info.tensors}
    looked_up = names.get("token_embd.weight", 0) if "output.weight" in names else 0
    return info.active_parameters - looked_up


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeioAEIO" or noun.startswith("MTP") else f"a {noun}"
