"""Maps HTCondor's codes and messages to an end status: outcome, failure category and reason.

The codes are documented at https://htcondor.readthedocs.io, "Job ClassAd Attributes", HoldReasonCode and
VacateReasonCode.
"""

from __future__ import annotations

import re

from packtrain.report.history import FailureCategory, Outcome
from packtrain.report.readers.end_status import EndStatus

_C = FailureCategory
_CATEGORY_BY_HOLD_CODE: dict[int, FailureCategory] = {
    1: _C.USER,
    3: _C.PROGRAM,  # a policy expression of the job's own submit file
    4: _C.POOL,
    5: _C.PROGRAM,
    6: _C.PROGRAM,  # the program could not be executed
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
    34: _C.PROGRAM,  # it used more memory or disk than requested
    35: _C.NODE,
    36: _C.TRANSFER,
    45: _C.NODE,
    46: _C.TIME_LIMIT,
    47: _C.TIME_LIMIT,
}
_INTERRUPTING_HOLD_CODES = frozenset({1, 21, 26, 34, 46, 47})  # these holds hit a running program
_TRANSFER_ERROR_PATTERN = re.compile(
    r"transfer|FileTransfer|stall|plugin|failed to (?:send|receive) file", re.IGNORECASE
)
_MISSING_FILE_PATTERN = re.compile(r"reading from file .*\(errno 2\)|No such file or directory")
_POLICY_PATTERN = re.compile(r"The (?:job attribute|system macro) (\w+) ")


def classify_hold(code: int, subcode: int, reason: str) -> EndStatus:
    """Classify a hold by its HoldReasonCode, HoldReasonSubCode and HoldReason."""
    category = _CATEGORY_BY_HOLD_CODE.get(code, _C.UNKNOWN)
    message = reason or ("held by a user without a reason" if code == 1 else f"held with code {code}")
    if category is _C.TIME_LIMIT:
        return EndStatus(Outcome.TIME_LIMIT, category, message)
    if code == 12 and subcode == 2 and _MISSING_FILE_PATTERN.search(reason):
        return EndStatus(Outcome.WRONG_OUTPUT, _C.WRONG_OUTPUT, message)
    return EndStatus(Outcome.HELD, category, message)


def interrupts_running_job(code: int, reason: str) -> bool:
    """Return whether a hold of this kind interrupts the running program, instead of following its end."""
    return code in _INTERRUPTING_HOLD_CODES or (code == 3 and "OnExitHold" not in reason)


def classify_eviction(code: int, subcode: int, reason: str) -> EndStatus:
    """Classify an eviction by its VacateReasonCode. Codes below 1000 are hold codes: the eviction was a failure."""
    if code == 45:
        return EndStatus(Outcome.FAILED, _C.NODE, reason or "the container could not be started")
    if code == 1008:
        return EndStatus(Outcome.LOST, _C.POOL, reason or "lost contact with the node")
    if 0 < code < 1000:
        hold = classify_hold(code, subcode, reason)
        return hold._replace(outcome=Outcome.FAILED) if hold.outcome is Outcome.HELD else hold
    return EndStatus(Outcome.EVICTED, _C.EVICTION, reason or "evicted by the pool")


def classify_shadow_exception(message: str) -> EndStatus:
    """Classify a shadow exception by its message."""
    category = _C.TRANSFER if _TRANSFER_ERROR_PATTERN.search(message) else _C.POOL
    return EndStatus(Outcome.FAILED, category, message or "the shadow failed without a message")


def classify_exit(exit_code: int | None, signal: int | None) -> EndStatus:
    """Classify the end of the program by its exit code or signal."""
    if exit_code == 0:
        return EndStatus(Outcome.SUCCEEDED, _C.NONE)
    message = f"exited with code {exit_code}" if exit_code is not None else f"killed by signal {signal}"
    return EndStatus(Outcome.FAILED, _C.PROGRAM, message)


def classify_requeue(exit_code: int | None, signal: int | None) -> EndStatus:
    """Classify an end that `on_exit_remove` did not accept: even exit code 0 is not a success."""
    status = classify_exit(exit_code, signal)
    if status.outcome is Outcome.SUCCEEDED:
        return EndStatus(Outcome.FAILED, _C.PROGRAM, "exited with code 0, but was put back into the queue")
    return status


def classify_removal(reason: str) -> EndStatus:
    """Classify a removal: by a user, unless the reason names a policy expression."""
    policy = _POLICY_PATTERN.match(reason)
    category = _C.USER if policy is None else _C.PROGRAM if "attribute" in reason[:20] else _C.POOL
    return EndStatus(Outcome.REMOVED, category, reason or "removed from the queue")
