"""What the words and codes of HTCondor say about an end: its outcome and its category. Pure tables.

Codes: https://htcondor.readthedocs.io, "Job ClassAd Attributes", HoldReasonCode and VacateReasonCode.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from packtrain.report.history import FailureCategory, Outcome


class EndStatus(NamedTuple):
    outcome: Outcome
    category: FailureCategory
    reason: str = ""


_C = FailureCategory
_CATEGORY_BY_HOLD_CODE: dict[int, FailureCategory] = {
    1: _C.USER,
    3: _C.PROGRAM,  # a rule of the job's own submit file
    4: _C.POOL,
    5: _C.PROGRAM,
    6: _C.PROGRAM,  # could not be executed
    **dict.fromkeys(range(7, 14), _C.TRANSFER),
    14: _C.TRANSFER,
    15: _C.USER,  # submitted on hold
    16: _C.TRANSFER,
    18: _C.TRANSFER,
    19: _C.NODE,
    21: _C.NODE,
    26: _C.POOL,
    27: _C.POOL,
    32: _C.TRANSFER,
    33: _C.TRANSFER,
    34: _C.PROGRAM,  # more memory or disk than it asked for
    35: _C.NODE,
    36: _C.TRANSFER,
    45: _C.NODE,
    46: _C.TIME_LIMIT,
    47: _C.TIME_LIMIT,
}
_INTERRUPTING_HOLD_CODES = frozenset({1, 21, 26, 34, 46, 47})  # holds that strike a running program
_TRANSFER_ERROR_PATTERN = re.compile(
    r"transfer|FileTransfer|stall|plugin|failed to (?:send|receive) file", re.IGNORECASE
)
_MISSING_FILE_PATTERN = re.compile(r"reading from file .*\(errno 2\)|No such file or directory")
_POLICY_PATTERN = re.compile(r"The (?:job attribute|system macro) (\w+) ")


def classify_hold(code: int, subcode: int, reason: str) -> EndStatus:
    category = _CATEGORY_BY_HOLD_CODE.get(code, _C.UNKNOWN)
    said = reason or ("held by a person, who gave no reason" if code == 1 else f"held, code {code}")
    if category is _C.TIME_LIMIT:
        return EndStatus(Outcome.TIME_LIMIT, category, said)
    if code == 12 and subcode == 2 and _MISSING_FILE_PATTERN.search(reason):
        return EndStatus(Outcome.WRONG_OUTPUT, _C.WRONG_OUTPUT, said)
    return EndStatus(Outcome.HELD, category, said)


def interrupts_running_job(code: int, reason: str) -> bool:
    """Whether a hold of this kind comes while the program runs, not at its end."""
    return code in _INTERRUPTING_HOLD_CODES or (code == 3 and "OnExitHold" not in reason)


def classify_eviction(code: int, subcode: int, reason: str) -> EndStatus:
    """Codes below 1000 are those of holds: something failed, and the pool calls it an eviction."""
    if code == 45:
        return EndStatus(Outcome.FAILED, _C.NODE, reason or "its container could not be started")
    if code == 1008:
        return EndStatus(Outcome.LOST, _C.POOL, reason or "the machine was not heard of again")
    if 0 < code < 1000:
        end = classify_hold(code, subcode, reason)
        return end._replace(outcome=Outcome.FAILED) if end.outcome is Outcome.HELD else end
    return EndStatus(Outcome.EVICTED, _C.EVICTION, reason or "the pool took the machine back")


def classify_shadow_exception(message: str) -> EndStatus:
    """A shadow gave up."""
    category = _C.TRANSFER if _TRANSFER_ERROR_PATTERN.search(message) else _C.POOL
    return EndStatus(Outcome.FAILED, category, message or "the shadow gave up")


def classify_exit(exit_code: int | None, signal: int | None) -> EndStatus:
    if exit_code == 0:
        return EndStatus(Outcome.SUCCEEDED, _C.NONE)
    said = f"it ended with exit code {exit_code}" if exit_code is not None else f"it was killed by signal {signal}"
    return EndStatus(Outcome.FAILED, _C.PROGRAM, said)


def classify_requeue(exit_code: int | None, signal: int | None) -> EndStatus:
    """It ended, and `on_exit_remove` did not accept that: not even an exit with 0 was a success."""
    end = classify_exit(exit_code, signal)
    if end.outcome is Outcome.SUCCEEDED:
        return EndStatus(Outcome.FAILED, _C.PROGRAM, "it ended with exit code 0, but was put back into the queue")
    return end


def classify_removal(reason: str) -> EndStatus:
    """By a person, unless a rule did it."""
    rule = _POLICY_PATTERN.match(reason)
    category = _C.USER if rule is None else _C.PROGRAM if "attribute" in reason[:20] else _C.POOL
    return EndStatus(Outcome.REMOVED, category, reason or "removed from the queue")
