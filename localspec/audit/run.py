"""The audit itself: every check in turn, each finding named, nothing stopped by the first bug."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from localspec.audit import algebra
from localspec.audit.cases import Case, Variant, cases, variants
from localspec.audit.forks import Comparison, compare, count_faults
from localspec.audit.noise import ROWS, measure, rewind_faults
from localspec.audit.records import AuditResult, Check, Fault, Fork, Noise
from localspec.audit.subject import Answer, Subject
from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.ground.errors import EngineDied, LocalspecError

Say = Callable[[str], None]
T = TypeVar("T")

_DRAFT_TOLERANCE = 0.02
_TIMES_ROUNDING = 3.0
"""Total variation allowed between a draft's own q and the same computed anew: this, or so many times what other
batches make of it here."""


class Audit:
    """One audit of one loaded pair."""

    def __init__(
        self,
        subject: Subject,
        *,
        has_draft: bool,
        raw: bool,
        quick: bool,
        speculates: bool = True,
        only: tuple[str, ...] = (),
        say: Say = lambda text: None,
    ) -> None:
        """`raw`: the model has no chat template. `speculates`: whether the target can have drafts at all.

        `only`: the checks to make, of `records.CHECKS`; () = all.
        """
        self._subject = subject
        self._has_draft = has_draft
        self._speculates = speculates
        self._quick = quick
        self._say = say
        self._only = only
        everything = cases(raw, quick)
        self._cases = [case for case in everything if self._wanted(case.check)]
        if self._wanted("distribution") or not self._cases:  # these look at texts, too
            self._texts_needed = [case for case in everything if case in self._cases or case.check == "greedy"]
        else:
            self._texts_needed = self._cases
        self._variants = variants(has_draft, quick, speculates)
        self._forks: list[Fork] = []
        self._faults: list[Fault] = []
        self._checks: dict[str, Check] = {}
        self._plain: dict[str, Answer] = {}
        self._tokens = 0
        self._noise = Noise(0.0, 0)

    def run(self) -> AuditResult:
        """Everything. An engine that dies ends it: what was found by then is the result."""
        start = time.perf_counter()
        complete = True
        try:
            self._plain_answers()
            self._measure_noise()
            if self._speculates and self._wanted("rewind") and self._noise.is_known:
                self._rewinds()
            if self._has_draft and self._speculates and self._wanted("distribution"):
                self._distributions()
            self._texts()
            if self._wanted("seeds"):
                self._sampling()
        except EngineDied as error:
            complete = False
            self._fault(Fault("engine", f"the engine died: {error.message}"))
        return AuditResult(
            tuple(self._checks.values()),
            tuple(self._forks),
            tuple(self._faults),
            self._noise,
            self._tokens,
            time.perf_counter() - start,
            self._quick,
            complete,
            self._only,
        )

    def _wanted(self, check: str) -> bool:
        return not self._only or check in self._only

    # --- stages ---------------------------------------------------------------------------------------

    def _plain_answers(self) -> None:
        for case in self._texts_needed:
            self._say(f"plain: {case.name}")
            answer = self._answer(case, Variant("plain", SpeculationSettings("none")))
            if answer is not None:
                self._plain[case.name] = answer
        first = self._texts_needed[0]
        again = self._answer(first, Variant("plain", SpeculationSettings("none")))
        same = again is not None and first.name in self._plain and again.tokens == self._plain[first.name].tokens
        note = "" if same else "plain decoding does not repeat itself on this machine: forks may come from that"
        self._count("plain twice", compared=1, equal=int(same), note=note)

    def _measure_noise(self) -> None:
        # The longest answers first, but a prompt's own tokens do as well: answers may all be short.
        answers = sorted(self._plain.values(), key=lambda answer: -min(len(answer.tokens), ROWS))
        texts = [[*answer.prompt, *answer.tokens] for answer in answers]
        widths = (3, 6) if self._quick else (2, 3, 5, 9)
        self._say("how far batches move the logits")
        self._guarded(
            "engine",
            lambda: self._set_noise(measure(self._subject, texts[: 2 if self._quick else 4], widths)),
        )

    def _set_noise(self, noise: Noise) -> None:
        self._noise = noise

    def _rewinds(self) -> None:
        self._say("rewinding")
        texts = [[*answer.prompt, *answer.tokens] for answer in self._plain.values()][: 1 if self._quick else 3]
        for text in texts:
            faults = self._guarded("rewind", partial(rewind_faults, self._subject, text, self._noise, self._has_draft))
            for fault in faults or ():
                self._fault(fault)
            self._count("rewind", compared=1, equal=int(not faults), bugs=len(faults or ()))

    def _distributions(self) -> None:
        """Drafts on real text, judged by exact computation."""
        looked: list[tuple[algebra.Place | None, SamplerSettings]] = []
        places = self._places()
        for number, (text, begin) in enumerate(places):
            self._say(f"distribution {number + 1} of {len(places)}")
            warm = SamplerSettings(temperature=0.8 if number % 2 else 1.0, seed=number, mode="rejection")
            if number % 3 == 2:
                warm = replace(warm, repeat_penalty=1.1)
            tokens = text[:begin]
            look = partial(algebra.look, self._subject, tokens, 3, warm, max(1, len(tokens) - 2))
            looked.append((self._guarded("draft distribution", look), warm))
        rounding = max((place.rounding for place, _ in looked if place is not None), default=0.0)
        tolerance = max(_DRAFT_TOLERANCE, _TIMES_ROUNDING * rounding)
        for place, warm in looked:
            faults = [] if place is None else _judge_place(place, warm, tolerance)
            for fault in faults:
                self._fault(fault)
            self._count("distribution", compared=1, equal=int(place is not None and not faults), bugs=len(faults))

    def _places(self) -> list[tuple[list[int], int]]:
        """Texts and where in them a draft is asked for, spread over the answers."""
        wanted = 4 if self._quick else 24
        answers = [answer for answer in self._plain.values() if len(answer.tokens) > 8]
        places = []
        for number in range(wanted if answers else 0):
            answer = answers[number % len(answers)]
            share = (number // len(answers) + 1) / (wanted // len(answers) + 2)
            places.append(([*answer.prompt, *answer.tokens], len(answer.prompt) + int(share * len(answer.tokens))))
        return places

    def _texts(self) -> None:
        plan = [(case, variant) for case in self._cases for variant in self._variants_of(case)]
        for number, (case, variant) in enumerate(plan, 1):
            self._say(f"{number} of {len(plan)}: {case.name}, {variant.name}")
            self._compare_text(case, variant)

    def _variants_of(self, case: Case) -> list[Variant]:
        """Of two model lengths the longer one is enough where cuts inside a block are the point."""
        spared = self._quick and len(self._variants) > 2 and case.check in ("stops", "penalties")
        return self._variants[spared:]

    def _compare_text(self, case: Case, variant: Variant) -> None:
        plain = self._plain.get(case.name)
        other = self._answer(case, variant)
        if plain is None or other is None:
            self._count(case.check, compared=1, bugs=1)
            return
        where = f"{case.name}, {variant.name}"
        what = Comparison(case.check, case.name, variant.name, replace(case.request, speculation=variant.speculation))
        found = self._guarded(case.check, lambda: compare(self._subject, plain, other, what, self._noise))
        wrong = count_faults(other, case.check, where)
        for fault in wrong:
            self._fault(fault)
        if isinstance(found, Fork):
            self._forks.append(found)
        elif isinstance(found, Fault):
            self._fault(found)
        tie = isinstance(found, Fork) and found.kind == "near-tie"
        bug = isinstance(found, Fault) or (isinstance(found, Fork) and found.kind == "bug")
        self._count(
            case.check, compared=1, equal=int(found is None and not wrong), near_ties=int(tie),
            bugs=len(wrong) + int(bug),
        )  # fmt: skip

    def _sampling(self) -> None:
        """A sampler must be obeyed: hot answers differ from each other, and a seed repeats its own."""
        self._say("seeds")
        case = next((case for case in self._texts_needed if case.name == "code"), self._texts_needed[0])
        variant = self._variants[0]
        hot = SamplerSettings(temperature=1.2, top_k=0, top_p=1.0, min_p=0.0)
        texts = []
        for seed in (11, 12, 13, 14, 11):
            request = replace(case.request, sampler=replace(hot, seed=seed, mode="rejection"), max_tokens=10)
            answer = self._answer(Case("seeds", case.name, request), variant)
            texts.append(answer.tokens if answer is not None else ())
        wrong = []
        if len(set(texts)) < 3:
            wrong.append(Fault("seeds", "four seeds at temperature 1.2 gave fewer than three different texts"))
        if texts[0] != texts[-1]:
            wrong.append(Fault("seeds", "the same seed gave two different texts"))
        for fault in wrong:
            self._fault(fault)
        self._count("seeds", compared=len(texts), equal=len(texts) - len(wrong), bugs=len(wrong))

    # --- helpers --------------------------------------------------------------------------------------

    def _answer(self, case: Case, variant: Variant) -> Answer | None:
        request = replace(case.request, speculation=variant.speculation)
        answer = self._guarded(case.check, lambda: self._subject.answer(request), f"{case.name}, {variant.name}")
        self._tokens += len(answer.tokens) if answer is not None else 0
        return answer

    def _guarded(self, check: str, do: Callable[[], T], where: str = "") -> T | None:
        """An engine that refuses or fails is a finding; one that died ends the audit."""
        try:
            return do()
        except EngineDied:
            raise
        except LocalspecError as error:
            self._fault(Fault(check, f"{where + ': ' if where else ''}the engine failed: {error.message}"))
            return None

    def _fault(self, fault: Fault) -> None:
        if fault not in self._faults:
            self._faults.append(fault)

    def _count(
        self,
        name: str,
        *,
        compared: int = 0,
        equal: int = 0,
        near_ties: int = 0,
        bugs: int = 0,
        note: str = "",
    ) -> None:
        before = self._checks.get(name, Check(name, 0, 0))
        self._checks[name] = Check(
            name, before.compared + compared, before.equal + equal, before.near_ties + near_ties,
            before.bugs + bugs, note or before.note,
        )  # fmt: skip


def _judge_place(place: algebra.Place, sampler: SamplerSettings, tolerance: float) -> list[Fault]:
    if not place.draft.ids:
        return []
    assert sampler.seed is not None
    return [
        *algebra.draft_faults(place, sampler, tolerance),
        *algebra.algebra_faults(place, len(place.tokens)),
        *algebra.coupled_faults(place, sampler.seed, len(place.tokens)),
    ]
