"""Exponential backoff: how long to wait after repeated failures."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_EXPONENT = 64  # beyond any useful delay, and far below the overflow of a float


@dataclass(frozen=True)
class Backoff:
    """Delays that grow by a factor with every failure in a row, up to a maximum.

    Attributes:
        initial_s: The delay after the first failure, in seconds.
        max_s: The largest delay, in seconds.
        factor: How much longer each delay is than the one before it.
    """

    initial_s: float
    max_s: float
    factor: float = 2.0

    def delay_s(self, n_failures: int) -> float:
        """Return the delay in seconds after `n_failures` failures in a row; 0 before the first failure."""
        if n_failures < 1:
            return 0.0
        return min(self.max_s, self.initial_s * self.factor ** min(n_failures - 1, _MAX_EXPONENT))
