"""Callback types through which transfers report progress, and the snapshots that some of them receive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Optional

ProgressCallback = Callable[[int, Optional[int]], None]
"""Receives the bytes done and the total, None while the total is unknown."""

OnBytesSent = Callable[[int], None]
"""Receives the number of bytes just sent; may raise to end the upload."""


def ignore_bytes_sent(n_bytes: int) -> None:
    """Do nothing; the default `OnBytesSent`."""


class SourceRate(NamedTuple):
    """The current speed of one source of a download."""

    label: str
    bytes_per_s: float
    connections: int
    is_backing_off: bool


@dataclass(frozen=True)
class TransferSnapshot:
    """The state of a running download, for display."""

    done_bytes: int
    total_bytes: int | None  # None while unknown
    bytes_per_s: float
    sources: tuple[SourceRate, ...]
    connections: int


SnapshotCallback = Callable[[TransferSnapshot], None]
