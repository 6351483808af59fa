"""The result of a check that an engine makes for `packtrain doctor`."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, ERROR = "ok", "warning", "error"


@dataclass(frozen=True)
class SetupCheck:
    """What was found, whether it is a problem, and what helps."""

    status: str
    message: str
    hint: str = ""
