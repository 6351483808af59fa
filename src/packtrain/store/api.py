"""What is kept, and the rows that come back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packtrain.events import Event

Cursor = tuple[str, str]  # a run, and the path of a journal: how far it was read


@dataclass(frozen=True)
class RunRow:
    run: str
    name: str
    engine: str
    folder: Path
    created: float


@dataclass(frozen=True)
class Stored:
    """An event with its place in the store: `id` grows, so a feed goes on where it stopped."""

    id: int
    arrived: float  # the store's clock
    event: Event


@dataclass(frozen=True)
class Lease:
    """The right to act for a run. `epoch` grows by one with every holder; older ones are refused."""

    run: str
    epoch: int
    holder: str
    host: str
    pid: int
    expires: float
    released: bool = False
