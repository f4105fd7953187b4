"""Draft-length policies of other runners, to compare with in the simulator. None of them looks at time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Literal

from localspec.engine.control.controller import Plan
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drafters.protocol import Forecast
from localspec.engine.records import Round, StateChange


class _Policy:
    """The draft model, with a length that some rule sets."""

    state: Literal["on", "off"] = "on"
    reason = ""
    changes: Sequence[StateChange] = ()

    def length(self) -> int:
        raise NotImplementedError

    weighs = None

    def begin(self, related: bool) -> None:
        pass

    def pays_debt(self, drafter: str, forecast: Forecast, position: int) -> bool:
        return True

    def plan(self, position: int, budget: int, forecasts: Mapping[str, Forecast]) -> Plan:
        forecast = forecasts.get("model")
        length = min(self.length(), forecast.longest) if forecast is not None else 0
        return Plan("model" if length else "none", length, self.reason)

    def worth(self, chance: float, made: int) -> bool:
        return True

    def observe(self, round_: Round) -> None:
        pass


class Recipe(_Policy):
    """Thresholds on recent acceptance: longer above 0.85, shorter below 0.70, shortest below 0.50."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=20)

    def length(self) -> int:
        rate = sum(self._recent) / len(self._recent) if self._recent else 0.8
        if rate > 0.85:
            return 8
        if rate < 0.50:
            return 2
        return 5 if rate > 0.70 else 3

    def observe(self, round_: Round) -> None:
        if round_.verified:
            self._recent.append(round_.accepted / round_.verified)


class Heuristic(_Policy):
    """Two more when all were kept, one less otherwise."""

    def __init__(self) -> None:
        self._length = 5

    def length(self) -> int:
        return self._length

    def observe(self, round_: Round) -> None:
        if round_.verified:
            whole = round_.accepted == round_.verified
            self._length = min(8, self._length + 2) if whole else max(1, self._length - 1)


class ConfidenceCut(_Policy):
    """On while the draft's own confidence stays above a bound; needs `SelfAssured` for a belief."""

    def __init__(self, bound: float, longest: int = 8) -> None:
        self._bound = bound
        self._longest = longest

    def length(self) -> int:
        return self._longest

    def worth(self, chance: float, made: int) -> bool:
        return chance >= self._bound


class SelfAssured(ModelBelief):
    """Takes the drafter's confidence in its last guess for the chance of the next."""

    def chance_after(self, confidence: float) -> float:
        return confidence
