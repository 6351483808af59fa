"""A distribution fitted to a few seen values: each stands for an equal share, spread between its neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from packtrain.errors import UsageError


@dataclass(frozen=True)
class EmpiricalDistribution:
    """`edges`: the shares lie between them, one more than there are values. The inverse of the cumulative distribution
    is linear between them, so that what is drawn was not only seen, and nothing is beyond the extremes."""

    edges: tuple[float, ...]

    @classmethod
    def from_values(cls, values: Iterable[float]) -> EmpiricalDistribution:
        ranked = sorted(values)
        if not ranked or not all(math.isfinite(value) and value >= 0 for value in ranked):
            raise UsageError("a distribution needs at least one value, and none below zero")
        middles = [(low + high) / 2 for low, high in pairwise(ranked)]
        return cls((ranked[0], *middles, ranked[-1]))

    def sample(self, rng: Random) -> float:
        return self.quantile(rng.random())

    def quantile(self, q: float) -> float:
        """The value that this share, 0 to below 1, of all lies below."""
        place = q * (len(self.edges) - 1)
        below = int(place)
        low, high = self.edges[below], self.edges[below + 1]
        return low + (high - low) * (place - below)

    @property
    def mean(self) -> float:
        return math.fsum((low + high) / 2 for low, high in pairwise(self.edges)) / (len(self.edges) - 1)


ZERO = EmpiricalDistribution((0.0, 0.0))
