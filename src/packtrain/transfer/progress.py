"""How a transfer stands, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class SourceRate(NamedTuple):
    label: str
    bytes_per_s: float  # bytes a second
    connections: int
    is_backing_off: bool


@dataclass(frozen=True)
class TransferSnapshot:
    done_bytes: int
    total_bytes: int | None
    bytes_per_s: float  # bytes a second
    sources: tuple[SourceRate, ...]
    connections: int


SnapshotCallback = Callable[[TransferSnapshot], None]
