"""The meaning of HTCondor's hold codes: the kind of failure, and whether to release the job.

The engine and the reports read the same table. The codes are documented at https://htcondor.readthedocs.io, "Job
ClassAd Attributes", HoldReasonCode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

RELEASE, WAIT, GIVE_UP = "release", "wait", "give_up"
TOO_MANY_EXECUTIONS_SUBCODE = 5501  # set by engines.htcondor.submit_description

_MISSING_FILE = re.compile(r"No such file or directory|Permission denied|does not exist", re.IGNORECASE)
_STALLED = re.compile(r"stall|timed? ?out|no progress|took too long", re.IGNORECASE)
# The answer of a server to a transfer plugin: "The requested URL returned error: 404", "HTTP status code 503".
_SERVER_ERROR = re.compile(
    r"\b(error|status|code|answered|returned|HTTP(/[\d.]+)?)\W{1,3}(404|410|429|50\d|51[01])\b"
    r"|\b404:? (page )?not found\b|(No such file or directory|does not exist).*\bURL file\b",
    re.IGNORECASE,
)
_DISK = re.compile(r"\bdisk\b", re.IGNORECASE)


@dataclass(frozen=True)
class HoldMeaning:
    """The meaning of a hold code."""

    failure_kind: str
    action: str  # RELEASE, WAIT (for the user) or GIVE_UP (submit another attempt)
    interrupts: bool = False  # such a hold hits a running program, instead of following its end
    category: str = ""  # of reports (user, program), if it does not follow from the failure kind


# Policies (3, 26) and a node's own reasons (21) may not apply at another site, so another attempt can succeed.
HOLD_CODES: dict[int, HoldMeaning] = {
    1: HoldMeaning("held", WAIT, interrupts=True, category="user"),
    3: HoldMeaning("policy_hold", GIVE_UP, interrupts=True, category="program"),  # of the job's own submit file
    4: HoldMeaning("policy_hold", GIVE_UP),  # a credential is corrupt
    5: HoldMeaning("submit_rejected", GIVE_UP),
    6: HoldMeaning("filesystem_unusable", RELEASE),  # the node could not start the launcher
    **dict.fromkeys(range(7, 14), HoldMeaning("transfer_failed", RELEASE)),
    14: HoldMeaning("submit_rejected", GIVE_UP),
    15: HoldMeaning("held", WAIT, category="user"),  # submitted on hold
    16: HoldMeaning("held", WAIT),  # HTCondor releases it when its inputs are spooled
    18: HoldMeaning("transfer_failed", RELEASE),
    19: HoldMeaning("container_failed", RELEASE),
    21: HoldMeaning("evicted", GIVE_UP, interrupts=True),
    22: HoldMeaning("submit_rejected", GIVE_UP),
    26: HoldMeaning("policy_hold", GIVE_UP, interrupts=True),
    27: HoldMeaning("policy_hold", GIVE_UP),
    32: HoldMeaning("transfer_too_large", GIVE_UP),
    33: HoldMeaning("transfer_too_large", GIVE_UP),
    34: HoldMeaning("out_of_memory", GIVE_UP, interrupts=True),
    35: HoldMeaning("container_failed", GIVE_UP),
    36: HoldMeaning("transfer_failed", RELEASE),
    45: HoldMeaning("container_failed", RELEASE),
    46: HoldMeaning("pool_time_limit", GIVE_UP, interrupts=True),
    47: HoldMeaning("pool_time_limit", GIVE_UP, interrupts=True),
}
UNKNOWN_HOLD = HoldMeaning("policy_hold", GIVE_UP)  # for any other code

# Ends of executions that are not holds, for the documentation; `engines.htcondor.tracking` implements them.
NON_HOLD_ENDS: tuple[tuple[str, str], ...] = (
    ("the pool evicted the job (004)", "evicted"),
    ("the pool evicted the job with code 45: the container could not be started", "container_failed"),
    ("the pool lost the connection to the job (007), for example because a socket was closed", "evicted"),
    ("the pool lost contact with the node until the job lease expired (024)", "lease_expired"),
    ("a user removed the job (009)", "cancelled"),
    (
        "the agent ended without an end event: killed by a signal, or with an exit code that is not in the table",
        "agent_lost",
    ),
)


def classify_hold(code: int, subcode: int, reason: str) -> HoldMeaning:
    """Return the meaning of a hold by its code, its subcode and the text of its reason."""
    meaning = HOLD_CODES.get(code, UNKNOWN_HOLD)
    if code == 3:
        if subcode == TOO_MANY_EXECUTIONS_SUBCODE:
            return HoldMeaning("restart_loop", GIVE_UP)
        return replace(meaning, interrupts="OnExitHold" not in reason)
    if code == 13 and _MISSING_FILE.search(reason) and "SHADOW" in reason.upper():
        return HoldMeaning("submit_rejected", GIVE_UP)  # a file of the access point is missing: a release does not help
    if code in (12, 13) and _STALLED.search(reason):
        return replace(meaning, failure_kind="transfer_stalled")
    if code in (12, 13) and _SERVER_ERROR.search(reason):
        return replace(meaning, failure_kind="transfer_refused")
    if code == 34 and _DISK.search(reason):
        return replace(meaning, failure_kind="disk_full")
    return meaning
