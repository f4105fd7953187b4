"""How long a model's pass takes by number of rows and depth of context, learned from passes as they happen.

    log seconds = level[rows] + depth[context bucket] + mood

`level` is the shape of the curve and moves slowly; `depth` grows with the context; `mood` is what the whole
machine does to every pass (a busy neighbour, a throttled chip) and moves fast. Each observation is shared out
among the three by how uncertain each is: a Kalman filter that also follows how each level's error goes with the
mood's. So a pass of one width moves the others, and a pass of another width puts right what was shared out wrongly.
Spikes hardly count. Widths that were never seen are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

MAX_ROWS = 65
"""Widest pass kept apart: a draft of 64 and the token before it."""

_NOISE = 0.08**2  # variance of one pass, in log seconds
_BEYOND = 0.25**2  # a width beyond all that were seen, and
_BETWEEN = 0.12**2  # one between two. Their first pass may be a spike as well: half of it is believed
_UNSEEN_DEPTH = 0.15**2
_LEVEL_WALK = 0.004**2  # per pass, seen or not: what was not measured for long is doubted
_DEPTH_WALK = 0.002**2
_MOOD_WALK = 0.03**2
_AFTER_STORAGE = 0.08**2  # what the shape of a stored curve may have lost in the meantime;
_MOOD_AFTER_STORAGE = 0.7**2  # how fast the machine is today is found out by the first pass
_MOST_RELATED = 0.99  # correlation of two estimates: the floors of their variances could leave more than there can be
_SPIKE = 2.5  # standard deviations, beyond which a pass is a spike ...
_SPIKE_SHARE = 0.25  # ... and counts for so much of that,
_STRIKES = 3  # unless so many in a row say the same
_LEVEL_JUMP = 0.5  # when they do, a level is thought to have moved by so much of what the mood has,
_PLAIN_JUMP = 0.2  # that of a plain pass hardly: what slows plain slows all
_WELL_KNOWN = 0.012  # variance of a level; surprises at others say nothing of the machine
_REBUILD = 0.01  # the curve is rebuilt when a level has moved by this much
_DEFAULT_SLOPE = 0.3  # extra time of a row, in passes of one row, before anything else is known
_BUCKET = 512  # tokens of context
_DEPTH_SHARE = 0.2  # of a bucket more, that may be taken for growth of the context instead of the mood


class Level:
    """An estimate and its variance, both in log seconds."""

    __slots__ = ("cross", "mean", "seen", "strikes", "variance")

    def __init__(self, mean: float, variance: float) -> None:
        self.mean = mean
        self.variance = variance
        self.cross = 0.0
        """Covariance of its error with the mood's."""
        self.strikes = 0
        """Spikes in a row on the same side (negative: below)."""
        self.seen = 0
        """When it was observed last, in passes."""


class PassTimes:
    """Seconds of one model's pass by rows (1..65) and position."""

    def __init__(self) -> None:
        self._levels: dict[int, Level] = {}
        self._depths: dict[int, Level] = {}
        self._mood = Level(0.0, _MOOD_WALK)
        self._passes = 0
        self._built: dict[int, float] = {}
        self._bucket = -1
        self._scale = 1.0  # at the bucket asked for last
        self.curve: list[float] = []
        """Seconds by rows (index 0 unused) before `scale`; empty while nothing is known."""
        self.revised = False
        """Whether the latest pass showed that times were not what they had been thought to be."""

    def scale(self, position: int) -> float:
        """What the context's depth and the machine's mood multiply the curve by."""
        bucket = position // _BUCKET
        if bucket != self._bucket:
            self._scale = math.exp(self._depth(bucket).mean + self._mood.mean)
            self._bucket = bucket
        return self._scale

    @property
    def mood(self) -> float:
        """What the machine does to every pass now, in log seconds; 0 = as when it was calibrated."""
        return self._mood.mean

    @property
    def pace(self) -> float:
        """What a pass of one row in an empty context takes now, in log seconds; times must be known."""
        return math.log(self.curve[1]) + self._mood.mean

    def shift(self, log_seconds: float) -> None:
        """The machine is known to be slower by so much."""
        self._mood.mean += log_seconds
        self._bucket = -1

    def seconds(self, rows: int, position: int) -> float:
        """Expected time of a pass; beyond 65 rows in proportion. 0 while nothing is known."""
        if not self.curve:
            return 0.0
        if rows <= MAX_ROWS:
            return self.curve[rows] * self.scale(position)
        return self.curve[MAX_ROWS] * self.scale(position) * rows / MAX_ROWS

    def observe(self, rows: int, position: int, seconds: float) -> None:
        """Learn from one pass. Wider passes than 65 rows are taken in proportion."""
        if seconds <= 0 or rows < 1:
            return
        if rows > MAX_ROWS:
            rows, seconds = MAX_ROWS, seconds * MAX_ROWS / rows
        log_seconds = math.log(seconds)
        level, noise = self._levels.get(rows), _NOISE
        if level is None:
            level, noise = self._first_level(rows, log_seconds)
        depth, mood = self._depth(position // _BUCKET), self._mood
        level.variance += _LEVEL_WALK * (self._passes - level.seen)
        mood.variance += _MOOD_WALK
        most = _MOST_RELATED * math.sqrt(level.variance * mood.variance)
        level.cross = max(-most, min(most, level.cross))
        surprise = log_seconds - level.mean - depth.mean - mood.mean
        total = level.variance + 2 * level.cross + depth.variance + mood.variance + noise
        learned = self._believe(surprise, total, rows, level)
        if self.revised:
            total = level.variance + 2 * level.cross + depth.variance + mood.variance + noise
        moved = self._share_out(learned, total, level, depth)
        self._passes += 1
        level.seen = self._passes
        self._bucket = -1
        if moved or abs(level.mean - self._built.get(rows, math.inf)) > _REBUILD:
            self._build()

    def doubted(self, rows: int) -> bool:
        """Whether the last passes of this width were surprises that have not been believed yet."""
        level = self._levels.get(rows)
        return level is not None and 0 < abs(level.strikes) < _STRIKES

    def set(self, rows: int, seconds: float) -> None:
        """Enter a time that was measured with care (the best of several passes)."""
        self._levels[rows] = Level(math.log(seconds), _NOISE / 4)
        self._levels[rows].seen = self._passes
        self._build()

    def _first_level(self, rows: int, log_seconds: float) -> tuple[Level, float]:
        doubt = _BETWEEN if any(rows < other for other in self._levels) else _BEYOND
        guess = math.log(self.curve[rows]) if self.curve else log_seconds
        noise = doubt if self._levels else 0.0
        level = self._levels[rows] = Level(guess, doubt)
        level.seen = self._passes
        return level, noise

    def _believe(self, surprise: float, total: float, rows: int, level: Level) -> float:
        """The part of a surprise to learn from: hardly any of a spike, all when passes keep surprising.

        When all widths do, or only one was in use, the machine is thought to have changed (and this width somewhat
        as well); when passes of other widths in between were as expected, only this width has.
        """
        limit = _SPIKE * math.sqrt(total)
        side = 1 if surprise > limit else -1 if surprise < -limit else 0
        level.strikes = level.strikes + side if side * level.strikes > 0 else side
        mood, known = self._mood, level.variance < _WELL_KNOWN
        if known:
            mood.strikes = mood.strikes + side if side * mood.strikes > 0 else side
        is_mood = known and abs(mood.strikes) >= _STRIKES
        self.revised = is_mood or abs(level.strikes) >= _STRIKES
        if not self.revised:
            return surprise if side == 0 else side * limit * _SPIKE_SHARE
        jump = surprise * surprise
        if is_mood:
            mood.variance += jump
            level.variance += jump * (_PLAIN_JUMP if rows == 1 else _LEVEL_JUMP) ** 2
        else:
            level.variance += jump
        return surprise

    def _share_out(self, surprise: float, total: float, level: Level, depth: Level) -> bool:
        """Move every estimate by its share of a surprise whose variance is `total`; whether other widths moved."""
        mood, moved = self._mood, False
        with_mood, with_level = mood.variance + level.cross, level.variance + level.cross
        mood_share = with_mood / total
        for other in self._levels.values():
            if other is level or not other.cross:
                continue
            share = other.cross / total
            other.mean += share * surprise
            moved = moved or abs(share * surprise) > _REBUILD
            other.variance = max(1e-6, other.variance - share * other.cross)
            other.cross -= share * with_mood
        level.mean += with_level / total * surprise
        level.variance = max(1e-6, level.variance - with_level * with_level / total)
        level.cross -= with_level * mood_share
        mood.mean += mood_share * surprise
        mood.variance = max(1e-6, mood.variance - with_mood * mood_share)
        share = depth.variance / total
        depth.mean += share * surprise
        depth.variance = depth.variance * (1 - share) + _DEPTH_WALK
        return moved

    def _depth(self, bucket: int) -> Level:
        depth = self._depths.get(bucket)
        if depth is None:
            depth = Level(0.0, 0.0)
            if self._depths:
                nearest = min(self._depths, key=lambda known: abs(known - bucket))
                depth = Level(self._depths[nearest].mean, _UNSEEN_DEPTH)
                if nearest < bucket and self._mood.strikes == 0:
                    # What looked like the mood on the way here was the growing context.
                    grown = min(_DEPTH_SHARE, max(0.0, self._mood.mean))
                    depth.mean += grown
                    self._mood.mean -= grown
            self._depths[bucket] = depth
        return depth

    def _build(self) -> None:
        """The curve through what was seen: straight between widths, with the mean slope beyond the last."""
        levels = sorted(self._levels.items())
        self._built = {rows: level.mean for rows, level in levels}
        freshness = [1 / (1 + self._passes - level.seen) for _, level in levels]
        points = _rising([(rows, math.exp(level.mean)) for rows, level in levels], freshness)
        first_rows, first = points[0]
        last_rows, last = points[-1]
        slope = _DEFAULT_SLOPE * first
        if last_rows > first_rows:
            slope = max(0.0, (last - first) / (last_rows - first_rows))
        curve = [first] * (MAX_ROWS + 1)
        for (left, low), (right, high) in pairwise(points):
            for rows in range(left, right + 1):
                curve[rows] = low + (high - low) * (rows - left) / (right - left)
        for rows in range(last_rows, MAX_ROWS + 1):
            curve[rows] = last + slope * (rows - last_rows)
        self.curve = curve

    def to_dict(self) -> dict[str, Any]:
        """The curve and the depths as plain JSON; the mood of the moment is not kept."""
        return {
            "levels": {str(rows): [level.mean, level.variance] for rows, level in self._levels.items()},
            "depths": {str(bucket): [level.mean, level.variance] for bucket, level in self._depths.items()},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> PassTimes:
        """The inverse of `to_dict`. ValueError, KeyError or TypeError when it cannot be that."""
        times = cls()
        times._levels = _levels(stored["levels"], 1, MAX_ROWS)
        times._depths = _levels(stored["depths"], 0, 1 << 16)
        times._mood.variance = _MOOD_AFTER_STORAGE
        if times._levels:
            times._build()
        return times


def _rising(points: list[tuple[int, float]], weights: list[float]) -> list[tuple[int, float]]:
    """More rows never take less time, but for the step from one row to two: other kernels run there.

    Neighbours out of order share their mean (pool adjacent violators), so that noise does not make a wider
    pass look free; the fresher of two that contradict each other weighs more.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, points
    head = 1 if points[0][0] == 1 else 0
    for (_, seconds), weight in zip(points[head:], weights[head:], strict=True):
        pool = (seconds, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, other, count = pools.pop()
            total = other + pool[1]
            pool = ((mean * other + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    values = [mean for mean, _, count in pools for _ in range(count)]
    return points[:head] + [(rows, value) for (rows, _), value in zip(points[head:], values, strict=True)]


def _levels(stored: Mapping[str, Any], lowest: int, highest: int) -> dict[int, Level]:
    levels = {}
    for key, (mean, variance) in stored.items():
        mean, variance = float(mean), float(variance)
        if not (lowest <= int(key) <= highest and abs(mean) < 20 and 0 <= variance < 10):
            raise ValueError(f"stored pass time out of range: {key}: {mean}, {variance}")
        levels[int(key)] = Level(mean, variance + _AFTER_STORAGE)
    return levels
