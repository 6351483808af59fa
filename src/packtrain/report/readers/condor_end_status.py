"""What the words and codes of HTCondor say about an end: its outcome and its category. Pure tables.

Codes: https://htcondor.readthedocs.io, "Job ClassAd Attributes", HoldReasonCode and VacateReasonCode.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from packtrain.report.history import Category, Outcome


class End(NamedTuple):
    outcome: Outcome
    category: Category
    reason: str = ""


C = Category
_HOLDS: dict[int, Category] = {
    1: C.PERSON,
    3: C.PROGRAM,  # a rule of the job's own submit file
    4: C.POOL,
    5: C.PROGRAM,
    6: C.PROGRAM,  # could not be executed
    **dict.fromkeys(range(7, 14), C.TRANSFER),
    14: C.TRANSFER,
    15: C.PERSON,  # submitted on hold
    16: C.TRANSFER,
    18: C.TRANSFER,
    19: C.MACHINE,
    21: C.MACHINE,
    26: C.POOL,
    27: C.POOL,
    32: C.TRANSFER,
    33: C.TRANSFER,
    34: C.PROGRAM,  # more memory or disk than it asked for
    35: C.MACHINE,
    36: C.TRANSFER,
    45: C.MACHINE,
    46: C.TIME_LIMIT,
    47: C.TIME_LIMIT,
}
_WHILE_RUNNING = frozenset({1, 21, 26, 34, 46, 47})  # holds that strike a running program
_TRANSFER_WORDS = re.compile(r"transfer|FileTransfer|stall|plugin|failed to (?:send|receive) file", re.IGNORECASE)
_MISSING = re.compile(r"reading from file .*\(errno 2\)|No such file or directory")
_BY_RULE = re.compile(r"The (?:job attribute|system macro) (\w+) ")


def of_hold(code: int, subcode: int, reason: str) -> End:
    category = _HOLDS.get(code, C.UNKNOWN)
    said = reason or ("held by a person, who gave no reason" if code == 1 else f"held, code {code}")
    if category is C.TIME_LIMIT:
        return End(Outcome.TIME_LIMIT, category, said)
    if code == 12 and subcode == 2 and _MISSING.search(reason):
        return End(Outcome.WRONG_OUTPUT, C.OUTPUT, said)
    return End(Outcome.HELD, category, said)


def strikes_a_running_program(code: int, reason: str) -> bool:
    """Whether a hold of this kind comes while the program runs, not at its end."""
    return code in _WHILE_RUNNING or (code == 3 and "OnExitHold" not in reason)


def of_eviction(code: int, subcode: int, reason: str) -> End:
    """Codes below 1000 are those of holds: something failed, and the pool calls it an eviction."""
    if code == 45:
        return End(Outcome.FAILED, C.MACHINE, reason or "its container could not be started")
    if code == 1008:
        return End(Outcome.LOST, C.POOL, reason or "the machine was not heard of again")
    if 0 < code < 1000:
        end = of_hold(code, subcode, reason)
        return end._replace(outcome=Outcome.FAILED) if end.outcome is Outcome.HELD else end
    return End(Outcome.EVICTED, C.EVICTION, reason or "the pool took the machine back")


def of_exception(message: str) -> End:
    """A shadow gave up."""
    category = C.TRANSFER if _TRANSFER_WORDS.search(message) else C.POOL
    return End(Outcome.FAILED, category, message or "the shadow gave up")


def of_exit(returned: int | None, signal: int | None) -> End:
    if returned == 0:
        return End(Outcome.SUCCEEDED, C.NONE)
    said = f"it ended with exit code {returned}" if returned is not None else f"it was killed by signal {signal}"
    return End(Outcome.FAILED, C.PROGRAM, said)


def of_requeue(returned: int | None, signal: int | None) -> End:
    """It ended, and `on_exit_remove` did not accept that: not even an exit with 0 was a success."""
    end = of_exit(returned, signal)
    if end.outcome is Outcome.SUCCEEDED:
        return End(Outcome.FAILED, C.PROGRAM, "it ended with exit code 0, but was put back into the queue")
    return end


def of_removal(reason: str) -> End:
    """By a person, unless a rule did it."""
    rule = _BY_RULE.match(reason)
    category = C.PERSON if rule is None else C.PROGRAM if "attribute" in reason[:20] else C.POOL
    return End(Outcome.REMOVED, category, reason or "removed from the queue")
