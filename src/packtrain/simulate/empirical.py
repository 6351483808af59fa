"""A distribution fitted to a few observed values, each of which represents an equal share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from packtrain.errors import UsageError


@dataclass(frozen=True)
class EmpiricalDistribution:
    """A piecewise linear quantile function.

    `edges` has one entry more than there are values. Samples lie between the observed values, never beyond them.
    """

    edges: tuple[float, ...]

    @classmethod
    def from_values(cls, values: Iterable[float]) -> EmpiricalDistribution:
        """Fit a distribution. Raises UsageError if there is no value, or a negative one."""
        ranked = sorted(values)
        if not ranked or not all(math.isfinite(value) and value >= 0 for value in ranked):
            raise UsageError("a distribution needs at least one value, and none below zero")
        middles = [(low + high) / 2 for low, high in pairwise(ranked)]
        return cls((ranked[0], *middles, ranked[-1]))

    def sample(self, rng: Random) -> float:
        return self.quantile(rng.random())

    def quantile(self, q: float) -> float:
        """Return the value below which the share `q` (0 to below 1) of all values lies."""
        position = q * (len(self.edges) - 1)
        below = int(position)
        low, high = self.edges[below], self.edges[below + 1]
        return low + (high - low) * (position - below)

    @property
    def mean(self) -> float:
        return math.fsum((low + high) / 2 for low, high in pairwise(self.edges)) / (len(self.edges) - 1)


ZERO = EmpiricalDistribution((0.0, 0.0))
