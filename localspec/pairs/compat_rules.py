"""The rules of a pair, one function each. Every rule looks at both headers and says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from localspec.pairs.gguf.model_info import CONTROL, ModelInfo
from localspec.pairs.gguf.vocabulary_diff import HeaderPair, described
from localspec.pairs.names import kinds

Severity = Literal["ok", "note", "warning", "stop", "refused"]
"""`stop`: not a matter of ids, but it would not help anybody (swapped models). `refused`: it cannot work."""

LLAMA_CPP_GAP = 128
"""llama.cpp refuses pairs whose vocabularies differ by more rows than this."""
MAX_DIFFERING = 0.01
"""Share of the common ids that may have different texts, padding rows apart."""
UNLIKELY_TO_PAY = 1 / 3
MAY_PAY = 1 / 10
_YES_NO = {None: "not stated", True: "yes", False: "no"}


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


Rule = Callable[[HeaderPair], Reason]


def _architecture(pair: HeaderPair) -> Reason:
    target, draft = kinds.describe(pair.target), kinds.describe(pair.draft)
    values = (f"{pair.target.architecture} ({target})", f"{pair.draft.architecture} ({draft})")
    if target != kinds.MODEL:
        return Reason("architecture", "refused", *values, f"the target is {_a(target)}, not a language model")
    if draft != kinds.MODEL:
        detail = f"the draft is {_a(draft)}, not a language model; it cannot guess without its target"
        return Reason("architecture", "refused", *values, detail)
    return Reason("architecture", "ok", *values, "both are language models")


def _rewind(pair: HeaderPair) -> Reason:
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
        detail = "the draft keeps a recurrent state, which cannot be taken back guess by guess"
        return Reason("rewind", "stop", *values, detail)
    return Reason("rewind", "ok", *values, "rejected guesses can be taken back")


def _tokenizer(pair: HeaderPair) -> Reason:
    values = (pair.target.tokenizer_model or "none", pair.draft.tokenizer_model or "none")
    if not pair.rows:
        which = "target" if not len(pair.target.tokens) else "draft"
        return Reason("tokenizer", "refused", *values, f"the {which} file carries no vocabulary")
    if values[0] != values[1]:
        return Reason("tokenizer", "refused", *values, "the two use different kinds of tokenizer")
    return Reason("tokenizer", "ok", *values, "the same kind of tokenizer")


def _pre_tokenizer(pair: HeaderPair) -> Reason:
    values = (pair.target.tokenizer_pre or "not stated", pair.draft.tokenizer_pre or "not stated")
    if values[0] == values[1]:
        return Reason("pre_tokenizer", "ok", *values, "text is cut up in the same way")
    detail = "the draft learnt text cut up differently; it may accept less, the output is unaffected"
    return Reason("pre_tokenizer", "warning", *values, detail)


def _rows(pair: HeaderPair) -> Reason:
    values = (f"{len(pair.target.tokens):,}", f"{len(pair.draft.tokens):,}")
    if not pair.gap:
        return Reason("rows", "ok", *values, "as many tokens")
    if not pair.rows:
        return Reason("rows", "ok", *values, "nothing to compare")
    if pair.real_in_gap:
        named = ", ".join(described(pair.longer, i)[0] for i in pair.real_in_gap[:3])
        more = f" and {len(pair.real_in_gap) - 3:,} more" if len(pair.real_in_gap) > 3 else ""
        side = "target" if pair.longer is pair.target else "draft"
        detail = f"only the {side} has {named}{more}; the draft never proposes what both do not have"
        return Reason("rows", "warning", *values, detail)
    if pair.gap > LLAMA_CPP_GAP:
        detail = f"{pair.gap:,} padding rows apart; masked here, llama.cpp itself would refuse the pair"
        return Reason("rows", "note", *values, detail)
    return Reason("rows", "note", *values, f"{pair.gap:,} padding rows apart, which carry no text")


def _texts(pair: HeaderPair) -> Reason:
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


def _types(pair: HeaderPair) -> Reason:
    only = sorted(set(pair.type_differs) - set(pair.text_differs))
    if not only:
        return Reason("token_types", "ok", "", "", "ids with the same text have the same type")
    first = pair.difference(only[0])
    values = (f"id {first.id}: {first.target_type}", f"id {first.id}: {first.draft_type}")
    have = "has" if len(only) == 1 else "have"
    detail = f"{_ids(len(only))} of the same text {have} another type, as {first.target_text}"
    return Reason("token_types", "note", *values, detail)


def _merges(pair: HeaderPair) -> Reason:
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

    def compare(pair: HeaderPair) -> Reason:
        values = pair.both(lambda info: _token(info, getattr(info, name)))
        if getattr(pair.target, name) == getattr(pair.draft, name):
            return Reason(rule, "ok", *values, "the same")
        return Reason(rule, severity, *values, consequence)

    return compare


def _flags(rule: str, name: str, consequence: str) -> Rule:
    """A rule that one of the yes/no settings of the tokenizer is the same; not stated counts as no."""

    def compare(pair: HeaderPair) -> Reason:
        values = pair.both(lambda info: _YES_NO[getattr(info, name)])
        if bool(getattr(pair.target, name)) == bool(getattr(pair.draft, name)):
            return Reason(rule, "ok", *values, "the same")
        return Reason(rule, "warning", *values, consequence)

    return compare


def _end_tokens(pair: HeaderPair) -> Reason:
    values = pair.both(lambda info: _listed(info, info.eog_ids))
    if pair.target.eog_ids == pair.draft.eog_ids:
        return Reason("eog", "ok", *values, "the same tokens end an answer")
    detail = "the target's set ends answers; the draft may guess past it for a few tokens"
    return Reason("eog", "note", *values, detail)


def _template_tokens(pair: HeaderPair) -> Reason:
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
    named = ", ".join(described(target, i)[0] for i in missing[:4])
    detail = f"the target's template uses {named}, unknown to the draft; it will accept less in chat"
    return Reason("template_tokens", "warning", named, "", detail)


def _template(pair: HeaderPair) -> Reason:
    values = pair.both(lambda info: "present" if info.chat_template else "none")
    if not pair.target.chat_template:
        return Reason("template", "note", *values, "the target has no chat template; prompts go as they are")
    if pair.target.chat_template == pair.draft.chat_template:
        return Reason("template", "ok", *values, "the same chat template")
    return Reason("template", "note", *values, "the target's chat template is used for both")


def _context(pair: HeaderPair) -> Reason:
    lengths = (pair.target.context_length, pair.draft.context_length)
    values = pair.both(lambda info: f"{info.context_length:,}" if info.context_length else "not stated")
    if all(lengths) and lengths[1] < lengths[0]:
        detail = f"beyond {lengths[1]:,} tokens the draft was never trained and guesses worse"
        return Reason("context", "note", *values, detail)
    return Reason("context", "ok", *values, "the draft reaches as far as the target")


def _swapped(pair: HeaderPair) -> Reason:
    values = (_billions(pair.target.parameters), _billions(pair.draft.parameters))
    if pair.draft.parameters > pair.target.parameters:
        return Reason("swapped", "stop", *values, "draft is larger than target; swap them")
    return Reason("swapped", "ok", *values, "the draft is not the larger model")


def _cost(pair: HeaderPair) -> Reason:
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


ASKED: dict[str, tuple[str, Severity]] = {
    "architecture": ("Are both language models, neither an encoder nor an assistant head?", "refused"),
    "rewind": ("Can rejected guesses be taken back from the model's memory?", "refused"),
    "tokenizer": ("Do both files carry a vocabulary of the same kind?", "refused"),
    "pre_tokenizer": ("Is text cut up in the same way before it becomes tokens?", "warning"),
    "rows": ("Are there as many tokens, padding apart?", "warning"),
    "token_texts": ("Does each common id have the same text? More than 1 % differing is too much", "refused"),
    "token_types": ("Does each common id have the same type?", "note"),
    "merges": ("Does text become the same ids?", "warning"),
    "bos": ("Is it the same token that begins a text?", "warning"),
    "add_bos": ("Do both want it at the beginning?", "warning"),
    "eos": ("Is it the same token that ends a text?", "note"),
    "add_eos": ("Do both want it at the end?", "warning"),
    "eot": ("Is it the same token that ends a turn?", "note"),
    "eog": ("Do the same tokens end an answer?", "note"),
    "pad": ("Is it the same padding token?", "note"),
    "template_tokens": ("Does the draft know the control tokens of the target's chat template?", "warning"),
    "template": ("Do both have the same chat template? The target's is used", "note"),
    "context": ("Was the draft trained on contexts as long as the target's?", "note"),
    "swapped": ("Is the draft the smaller model?", "stop"),
    "cost": ("What does a guess cost in target tokens?", "warning"),
}
"""Rule -> what it asks, and the gravest it can find."""


# --- words --------------------------------------------------------------------------------------------


def _token(info: ModelInfo, token: int | None) -> str:
    return "none" if token is None else f"{token} {described(info, token)[0]}".strip()


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
