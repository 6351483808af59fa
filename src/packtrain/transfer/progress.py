"""How a transfer stands, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class SourceRate(NamedTuple):
    label: str
    rate: float  # bytes a second
    connections: int
    resting: bool


@dataclass(frozen=True)
class Snapshot:
    done: int
    total: int | None
    rate: float  # bytes a second
    sources: tuple[SourceRate, ...]
    connections: int


Observe = Callable[[Snapshot], None]
