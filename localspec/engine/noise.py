"""Randomness of the two sampling modes.

`rejection`: an ordinary generator. `coupled`: Gumbel noise that is a pure function of (seed, position,
token id), so that target and draft, and any two runs, see the same noise at the same place
(drafter-invariant sampling, arXiv 2408.07978).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localspec.engine.sampling import Distribution
from localspec.engine.settings import SamplerSettings

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def gumbel_noise(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each token id at one position, shape of `ids`; the same numbers on every
    machine."""
    key = _mix(_mix(seed & _MASK) ^ (position * _GOLDEN & _MASK))
    bits = _mix_array(ids.astype(np.uint64) * np.uint64(_GOLDEN) ^ np.uint64(key))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


class Rejection:
    """Independent randomness: the default without a seed."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def uniform(self) -> float:
        """In [0, 1)."""
        return float(self._generator.random())

    def choose(self, distribution: Distribution, position: int) -> int:
        """A sample for the token at `position`."""
        if len(distribution.ids) == 1:
            return distribution.top
        return distribution.sample(self.uniform())


class Coupled:
    """Noise tied to (seed, position, token id)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def choose(self, distribution: Distribution, position: int) -> int:
        """The sample for the token at `position`: whoever asks with the same distribution gets the same
        token."""
        if len(distribution.ids) == 1:
            return distribution.top
        return distribution.sample_with_noise(gumbel_noise(self._seed, position, distribution.ids))


Chance = Rejection | Coupled


def new_chance(sampler: SamplerSettings) -> Chance:
    """The randomness of an answer under these settings."""
    if sampler.coupled and not sampler.greedy:
        seed = (
            sampler.seed if sampler.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
        )
        return Coupled(seed)
    return Rejection(sampler.seed)


def _mix(value: int) -> int:
    """splitmix64's finaliser."""
    value = (value + _GOLDEN) & _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values + np.uint64(_GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
