"""The colors of all charts. Each meaning has one color: cool is useful, warm is wasted, gray is waiting.

The hues are from the palettes of Okabe and Ito and of Tol, which color-blind readers can distinguish. A test measures
their distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.history import FailureCategory, Phase


@dataclass(frozen=True, eq=False)
class ThemeColor:
    """A color in the light and the dark theme."""

    name: str  # of the CSS variable
    light: str
    dark: str
    label: str = ""  # in legends


# Text and background
BACKGROUND = ThemeColor("surface", "#ffffff", "#1b1f25")
TEXT = ThemeColor("text", "#1d2127", "#e8eaed")
MUTED = ThemeColor("muted", "#5d6570", "#a2abb7")
GRID = ThemeColor("grid", "#e6e9ed", "#2e353e")
ERROR = ThemeColor("error", "#b3261e", "#ff8a80", "did not succeed")

# Time by use and phase
EXECUTE = ThemeColor("execute", "#009e73", "#12a981", "useful compute")
TRANSFER = ThemeColor("transfer", "#56b4e9", "#56b4e9", "useful transfer")
UNPACK = ThemeColor("unpack", "#064b86", "#1d6fb4", "unpacking")
UPLOAD = ThemeColor("upload", "#0e2338", "#b3dafe", "output transfer")
WASTED_TRANSFER = ThemeColor("wasted-transfer", "#d55e00", "#e8701a", "wasted transfer")
EVICTION = ThemeColor("eviction", "#f5b04f", "#febc6e", "compute lost to eviction")
TIME_LIMIT = ThemeColor("time-limit", "#b5789d", "#cd95b6", "compute lost to the time limit")
WRONG_OUTPUT = ThemeColor("wrong-output", "#963e71", "#b26098", "compute lost to wrong output")
FAILURE = ThemeColor("failure", "#4a2806", "#a34a15", "compute lost to failure")
RESTART = ThemeColor("restart", "#f2e233", "#e3d21a", "checkpoint and restart")
OVERHEAD = ThemeColor("overhead", "#aeb4b7", "#506366", "overhead")
IN_PROGRESS = ThemeColor("in-progress", "#85dfb4", "#10512c", "in progress")
QUEUED = ThemeColor("queued", "#d6dce4", "#333a4a", "queued")
HELD = ThemeColor("held", "#3f4347", "#d3d7dc", "held")
SUSPENDED = ThemeColor("suspended", "#846ea8", "#541adb", "suspended")
DISCONNECTED = ThemeColor("disconnected", "#5f65cf", "#9c67f9", "disconnected")

CHROME_COLORS = (BACKGROUND, TEXT, MUTED, GRID, ERROR)
TIME_COLORS = (
    EXECUTE, IN_PROGRESS, TRANSFER, UNPACK, UPLOAD, WASTED_TRANSFER, EVICTION, TIME_LIMIT, WRONG_OUTPUT, FAILURE,
    RESTART, OVERHEAD, SUSPENDED, DISCONNECTED, HELD, QUEUED,
)  # fmt: skip
ALL_COLORS = (*CHROME_COLORS, *TIME_COLORS)

COLOR_BY_TIME_USE: Mapping[TimeUse, ThemeColor] = {
    TimeUse.USEFUL_COMPUTE: EXECUTE,
    TimeUse.USEFUL_TRANSFER: TRANSFER,
    TimeUse.WASTED_TRANSFER: WASTED_TRANSFER,
    TimeUse.LOST_TO_EVICTION: EVICTION,
    TimeUse.LOST_TO_TIME_LIMIT: TIME_LIMIT,
    TimeUse.LOST_TO_WRONG_OUTPUT: WRONG_OUTPUT,
    TimeUse.LOST_TO_FAILURE: FAILURE,
    TimeUse.CHECKPOINT_RESTART: RESTART,
    TimeUse.OVERHEAD: OVERHEAD,
    TimeUse.IN_PROGRESS: IN_PROGRESS,
}
COLOR_BY_CATEGORY: Mapping[FailureCategory, ThemeColor] = {
    FailureCategory.TRANSFER: WASTED_TRANSFER,
    FailureCategory.WRONG_OUTPUT: WRONG_OUTPUT,
    FailureCategory.TIME_LIMIT: TIME_LIMIT,
    FailureCategory.EVICTION: EVICTION,
    FailureCategory.PROGRAM: FAILURE,
    FailureCategory.NODE: DISCONNECTED,
    FailureCategory.POOL: SUSPENDED,
    FailureCategory.USER: HELD,
    FailureCategory.POLICY: HELD,
    FailureCategory.UNKNOWN: OVERHEAD,
    FailureCategory.NONE: OVERHEAD,
}
_COLOR_BY_PHASE: Mapping[Phase, ThemeColor] = {
    Phase.QUEUED: QUEUED,
    Phase.HELD: HELD,
    Phase.SETUP: OVERHEAD,
    Phase.TRANSFER_IN: TRANSFER,
    Phase.UNPACK: UNPACK,
    Phase.EXECUTE: EXECUTE,
    Phase.CHECKPOINT: RESTART,
    Phase.TRANSFER_OUT: UPLOAD,
    Phase.SUSPENDED: SUSPENDED,
    Phase.DISCONNECTED: DISCONNECTED,
}
_USES_COLORED_BY_PHASE = (TimeUse.USEFUL_TRANSFER, TimeUse.OVERHEAD)  # the phase is more specific than the time use
_IN_PROGRESS_COLORS = {Phase.EXECUTE: IN_PROGRESS}


def color_of(phase: Phase, use: TimeUse | None) -> ThemeColor:
    """Return the color of an interval: by phase if it was useful or overhead, otherwise by time use."""
    if use is TimeUse.IN_PROGRESS:
        return _IN_PROGRESS_COLORS.get(phase, _COLOR_BY_PHASE[phase])
    if use is None or use in _USES_COLORED_BY_PHASE:
        return _COLOR_BY_PHASE[phase]
    return COLOR_BY_TIME_USE[use]
