"""How archives are scanned, and how scanners report progress. Shared by the scanners of tars and zips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OnScanProgress = Callable[[int, int], None]
"""Called with the number of bytes scanned and of files found since the last call."""


@dataclass(frozen=True)
class ScanSettings:
    """How much is read at the same time, and how often it is saved."""

    min_region_bytes: int = 4 << 20  # minimum part of a tar for one walk
    max_chain_members: int = 512  # a chain is saved when it has this many members
    min_threads: int = 2
    max_threads: int = 64
