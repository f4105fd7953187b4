"""Rounds to the statistics of one answer. Every rate that the product shows comes from here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from localspec.engine.records import GenerationStats, Provenance, Round, State, StateChange


class StatsBuilder:
    """Counts rounds as they end; `build` makes the record."""

    def __init__(self, prompt_tokens: int, reused_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._reused_tokens = reused_tokens
        self._provenance: Counter[Provenance] = Counter()
        self._by_drafter: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()
        self._reached: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()
        self._seconds: Counter[str] = Counter()
        self._passes = self._drafted = self._verified = self._foreign = 0
        self.ttft_seconds: float | None = None

    def add(self, round: Round, out_of_vocabulary: int = 0) -> None:
        """Count one round. The first one ends prefill: its time is in `ttft_seconds`, not in the parts."""
        self._passes += 1
        self._drafted += len(round.drafted)
        self._verified += round.verified
        self._foreign += out_of_vocabulary
        self._provenance.update(round.provenance)
        self._by_drafter[round.drafter] += 1
        self._lengths[round.verified] += 1
        for position in range(round.depth):
            self._reached[position] += 1
            self._kept[position] += position < round.accepted
        if round.index > 0:
            for part in _PARTS:
                self._seconds[part] += getattr(round, part)

    @property
    def reused_tokens(self) -> int:
        """Prompt tokens that were held already."""
        return self._reused_tokens

    @property
    def emitted(self) -> int:
        """Tokens so far."""
        return self._provenance.total()

    def build(
        self,
        wall_seconds: float,
        plain_token_seconds: float | None,
        state: State,
        reason: str,
        changes: Sequence[StateChange] = (),
        trouble: str = "",
    ) -> GenerationStats:
        """`wall_seconds` from the request to the last token. `plain_token_seconds`: mean time of a plain
        token on this text, None when nothing measured it."""
        emitted = self.emitted
        ttft = self.ttft_seconds
        decode_seconds = wall_seconds - (ttft or 0.0)
        rate = _ratio(emitted - 1, decode_seconds) if emitted > 1 else None
        plain_rate = _ratio(1.0, plain_token_seconds) if plain_token_seconds else None
        counted = sum(self._seconds[part] for part in _MEASURED)
        return GenerationStats(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused_tokens,
            emitted=emitted,
            target_passes=self._passes,
            drafted=self._drafted,
            verified=self._verified,
            accepted=self._provenance[Provenance.ACCEPTED],
            discarded_unverified=self._drafted - self._verified,
            bonus=self._provenance[Provenance.BONUS],
            corrected=self._provenance[Provenance.CORRECTED],
            plain=self._provenance[Provenance.PLAIN],
            acceptance_rate=_ratio(self._provenance[Provenance.ACCEPTED], self._verified),
            mean_acceptance_length=_ratio(emitted, self._passes),
            tokens_per_second=rate,
            prompt_tokens_per_second=_ratio(self._prompt_tokens - self._reused_tokens, ttft or 0.0),
            ttft_seconds=ttft,
            wall_seconds=wall_seconds,
            draft_seconds=self._seconds["draft_seconds"],
            verify_seconds=self._seconds["verify_seconds"],
            sample_seconds=self._seconds["sample_seconds"],
            rewind_seconds=self._seconds["rewind_seconds"],
            # What the rounds did not time (handing events over, for example) is wall time too.
            other_seconds=max(0.0, decode_seconds - counted) if ttft is not None else 0.0,
            plain_tokens_per_second=plain_rate,
            speedup=rate / plain_rate if rate is not None and plain_rate else None,
            accepted_per_position=tuple(
                self._kept[position] / self._reached[position] for position in range(len(self._reached))
            ),
            rounds_by_drafter=dict(self._by_drafter),
            draft_lengths=dict(sorted(self._lengths.items())),
            out_of_vocabulary=self._foreign,
            state=state,
            reason=reason,
            changes=tuple(changes),
            trouble=trouble,
        )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


_MEASURED = ("draft_seconds", "verify_seconds", "sample_seconds", "rewind_seconds")
_PARTS = (*_MEASURED, "other_seconds")
