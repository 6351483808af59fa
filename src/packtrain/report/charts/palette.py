"""The one table of colours. Each meaning has one, everywhere: cool is useful, warm is wasted, grey is waiting.

The hues are those of Okabe and Ito and of Tol, which the colour-blind can tell apart; a test measures that they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packtrain.report.analysis.time_accounting import Share
from packtrain.report.history import Category, Phase


@dataclass(frozen=True, eq=False)
class Paint:
    name: str  # in CSS: var(--name)
    light: str
    dark: str
    words: str = ""  # in legends


# What charts are made of
PAPER = Paint("paper", "#ffffff", "#1b1f25")
INK = Paint("ink", "#1d2127", "#e8eaed")
FAINT = Paint("faint", "#5d6570", "#a2abb7")
GRID = Paint("grid", "#e6e9ed", "#2e353e")
BAD = Paint("bad", "#b3261e", "#ff8a80", "did not succeed")

# What seconds were
EXECUTE = Paint("execute", "#009e73", "#12a981", "useful compute")
TRANSFER = Paint("transfer", "#56b4e9", "#56b4e9", "useful transfer")
UNPACK = Paint("unpack", "#064b86", "#1d6fb4", "unpacking")
UPLOAD = Paint("upload", "#0e2338", "#b3dafe", "outputs brought home")
THROWN_AWAY = Paint("thrown-away", "#d55e00", "#e8701a", "transfer thrown away")
EVICTION = Paint("eviction", "#f5b04f", "#febc6e", "compute lost to eviction")
TIME_LIMIT = Paint("time-limit", "#b5789d", "#cd95b6", "compute lost to the time limit")
OUTPUT = Paint("wrong-output", "#963e71", "#b26098", "compute lost to wrong output")
FAILURE = Paint("failure", "#4a2806", "#a34a15", "compute lost to failure")
RESTART = Paint("restart", "#f2e233", "#e3d21a", "checkpoint and restart")
OVERHEAD = Paint("overhead", "#aeb4b7", "#506366", "overhead")
UNDER_WAY = Paint("under-way", "#85dfb4", "#10512c", "under way")
QUEUED = Paint("queued", "#d6dce4", "#333a4a", "queued")
HELD = Paint("held", "#3f4347", "#d3d7dc", "held")
SUSPENDED = Paint("suspended", "#846ea8", "#541adb", "suspended")
DISCONNECTED = Paint("disconnected", "#5f65cf", "#9c67f9", "disconnected")

FRAME = (PAPER, INK, FAINT, GRID, BAD)
SECONDS = (
    EXECUTE, UNDER_WAY, TRANSFER, UNPACK, UPLOAD, THROWN_AWAY, EVICTION, TIME_LIMIT, OUTPUT, FAILURE, RESTART, OVERHEAD,
    SUSPENDED, DISCONNECTED, HELD, QUEUED,
)  # fmt: skip
EVERY = (*FRAME, *SECONDS)

OF_SHARE: Mapping[Share, Paint] = {
    Share.COMPUTE: EXECUTE,
    Share.TRANSFER: TRANSFER,
    Share.THROWN_AWAY: THROWN_AWAY,
    Share.EVICTION: EVICTION,
    Share.TIME_LIMIT: TIME_LIMIT,
    Share.OUTPUT: OUTPUT,
    Share.FAILURE: FAILURE,
    Share.RESTART: RESTART,
    Share.OVERHEAD: OVERHEAD,
    Share.UNDER_WAY: UNDER_WAY,
}
OF_CATEGORY: Mapping[Category, Paint] = {
    Category.TRANSFER: THROWN_AWAY,
    Category.OUTPUT: OUTPUT,
    Category.TIME_LIMIT: TIME_LIMIT,
    Category.EVICTION: EVICTION,
    Category.PROGRAM: FAILURE,
    Category.MACHINE: DISCONNECTED,
    Category.POOL: SUSPENDED,
    Category.PERSON: HELD,
    Category.UNKNOWN: OVERHEAD,
    Category.NONE: OVERHEAD,
}
_OF_PHASE: Mapping[Phase, Paint] = {
    Phase.QUEUED: QUEUED,
    Phase.HELD: HELD,
    Phase.START: OVERHEAD,
    Phase.TRANSFER_IN: TRANSFER,
    Phase.UNPACK: UNPACK,
    Phase.EXECUTE: EXECUTE,
    Phase.CHECKPOINT: RESTART,
    Phase.TRANSFER_OUT: UPLOAD,
    Phase.SUSPENDED: SUSPENDED,
    Phase.DISCONNECTED: DISCONNECTED,
}
_PHASE_TELLS = (Share.TRANSFER, Share.OVERHEAD)  # there the phase says more than the share
_OPEN = {Phase.EXECUTE: UNDER_WAY}


def of_piece(phase: Phase, share: Share | None) -> Paint:
    """Of a piece of time: by its phase while it was of use, by what became of it else."""
    if share is Share.UNDER_WAY:
        return _OPEN.get(phase, _OF_PHASE[phase])
    if share is None or share in _PHASE_TELLS:
        return _OF_PHASE[phase]
    return OF_SHARE[share]
