"""What a hold means: whose fault it is, and whether letting the job go again may help.

Codes: https://htcondor.readthedocs.io, "Job ClassAd Attributes", HoldReasonCode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RELEASE, WAIT, GIVE_UP = "release", "wait", "give_up"
TOO_MANY_EXECUTIONS_SUBCODE = 5501  # our own subcode, see `text`

_MISSING_FILE = re.compile(r"No such file or directory|Permission denied|does not exist", re.IGNORECASE)
_STALLED = re.compile(r"stall|timed? ?out|no progress|took too long", re.IGNORECASE)
# What the server said to a transfer plugin: "The requested URL returned error: 404", "HTTP status code 503".
_SERVER_ERROR = re.compile(
    r"\b(error|status|code|answered|returned|HTTP(/[\d.]+)?)\W{1,3}(404|410|429|50\d|51[01])\b"
    r"|\b404:? (page )?not found\b|(No such file or directory|does not exist).*\bURL file\b",
    re.IGNORECASE,
)
_DISK = re.compile(r"\bdisk\b", re.IGNORECASE)


@dataclass(frozen=True)
class HoldMeaning:
    failure_kind: str  # of failure
    action: str


# Policies (3, 26) and a machine's own reasons (21) are somebody's rule: another attempt elsewhere may well keep it.
HOLD_CODES: dict[int, HoldMeaning] = {
    1: HoldMeaning("held", WAIT),
    3: HoldMeaning("policy_hold", GIVE_UP),
    5: HoldMeaning("submit_rejected", GIVE_UP),
    6: HoldMeaning("transfer_failed", RELEASE),
    7: HoldMeaning("transfer_failed", RELEASE),
    8: HoldMeaning("transfer_failed", RELEASE),
    11: HoldMeaning("transfer_failed", RELEASE),
    12: HoldMeaning("transfer_failed", RELEASE),
    13: HoldMeaning("transfer_failed", RELEASE),
    14: HoldMeaning("submit_rejected", GIVE_UP),
    15: HoldMeaning("held", WAIT),
    16: HoldMeaning("held", WAIT),
    18: HoldMeaning("transfer_failed", RELEASE),
    19: HoldMeaning("container_failed", RELEASE),
    21: HoldMeaning("evicted", GIVE_UP),
    22: HoldMeaning("submit_rejected", GIVE_UP),
    26: HoldMeaning("policy_hold", GIVE_UP),
    32: HoldMeaning("transfer_too_large", GIVE_UP),
    33: HoldMeaning("transfer_too_large", GIVE_UP),
    34: HoldMeaning("out_of_memory", GIVE_UP),
    35: HoldMeaning("container_failed", GIVE_UP),
    36: HoldMeaning("transfer_failed", RELEASE),
    45: HoldMeaning("container_failed", RELEASE),
    46: HoldMeaning("pool_time_limit", GIVE_UP),
    47: HoldMeaning("pool_time_limit", GIVE_UP),
}
UNKNOWN_HOLD = HoldMeaning("policy_hold", GIVE_UP)  # of any other code

# Ends that are no holds, as the docs tell them; `tracker` and `state.attempt` know them.
NON_HOLD_ENDS: tuple[tuple[str, str], ...] = (
    ("the pool took the machine back (004)", "evicted"),
    ("the same with code 45: the container could not be started", "container_failed"),
    ("the pool lost it (007), e.g. because a socket was closed", "evicted"),
    ("the machine was not heard of within the job's lease (024)", "lease_expired"),
    ("a person removed it (009)", "cancelled"),
    (
        "an agent that is gone without a word: killed by a signal, or with an exit code that is not in the table",
        "agent_lost",
    ),
)


def classify_hold(code: int, subcode: int, reason: str) -> HoldMeaning:
    if code == 3 and subcode == TOO_MANY_EXECUTIONS_SUBCODE:
        return HoldMeaning("restart_loop", GIVE_UP)
    if code == 13 and _MISSING_FILE.search(reason) and "SHADOW" in reason.upper():
        return HoldMeaning("submit_rejected", GIVE_UP)  # a file of the access point itself: waiting brings nothing
    if code in (12, 13) and _STALLED.search(reason):
        return HoldMeaning("transfer_stalled", RELEASE)
    if code in (12, 13) and _SERVER_ERROR.search(reason):
        return HoldMeaning("transfer_refused", RELEASE)
    if code == 34 and _DISK.search(reason):
        return HoldMeaning("disk_full", GIVE_UP)
    return HOLD_CODES.get(code, UNKNOWN_HOLD)
