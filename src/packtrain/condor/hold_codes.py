"""What a hold means: whose fault it is, and whether letting the job go again may help.

Codes: https://htcondor.readthedocs.io, "Job ClassAd Attributes", HoldReasonCode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RELEASE, WAIT, GIVE_UP = "release", "wait", "give_up"
STARTED_TOO_OFTEN = 5501  # our own subcode, see `text`

_MISSING = re.compile(r"No such file or directory|Permission denied|does not exist", re.IGNORECASE)
_STALLED = re.compile(r"stall|timed? ?out|no progress|took too long", re.IGNORECASE)
# What the server said to a transfer plugin: "The requested URL returned error: 404", "HTTP status code 503".
_REFUSED = re.compile(
    r"\b(error|status|code|answered|returned|HTTP(/[\d.]+)?)\W{1,3}(404|410|429|50\d|51[01])\b"
    r"|\b404:? (page )?not found\b|(No such file or directory|does not exist).*\bURL file\b",
    re.IGNORECASE,
)
_DISK = re.compile(r"\bdisk\b", re.IGNORECASE)


@dataclass(frozen=True)
class Meaning:
    kind: str  # of failure
    action: str


# Policies (3, 26) and a machine's own reasons (21) are somebody's rule: another attempt elsewhere may well keep it.
MEANINGS: dict[int, Meaning] = {
    1: Meaning("held", WAIT),
    3: Meaning("policy_hold", GIVE_UP),
    5: Meaning("submit_refused", GIVE_UP),
    6: Meaning("delivery_failed", RELEASE),
    7: Meaning("delivery_failed", RELEASE),
    8: Meaning("delivery_failed", RELEASE),
    11: Meaning("delivery_failed", RELEASE),
    12: Meaning("delivery_failed", RELEASE),
    13: Meaning("delivery_failed", RELEASE),
    14: Meaning("submit_refused", GIVE_UP),
    15: Meaning("held", WAIT),
    16: Meaning("held", WAIT),
    18: Meaning("delivery_failed", RELEASE),
    19: Meaning("container_failed", RELEASE),
    21: Meaning("evicted", GIVE_UP),
    22: Meaning("submit_refused", GIVE_UP),
    26: Meaning("policy_hold", GIVE_UP),
    32: Meaning("delivery_too_large", GIVE_UP),
    33: Meaning("delivery_too_large", GIVE_UP),
    34: Meaning("out_of_memory", GIVE_UP),
    35: Meaning("container_failed", GIVE_UP),
    36: Meaning("delivery_failed", RELEASE),
    45: Meaning("container_failed", RELEASE),
    46: Meaning("time_limit", GIVE_UP),
    47: Meaning("time_limit", GIVE_UP),
}
UNKNOWN = Meaning("policy_hold", GIVE_UP)  # of any other code

# Ends that are no holds, as the docs tell them; `tracker` and `state.attempt` know them.
ENDINGS: tuple[tuple[str, str], ...] = (
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


def meaning(code: int, subcode: int, reason: str) -> Meaning:
    if code == 3 and subcode == STARTED_TOO_OFTEN:
        return Meaning("never_starts", GIVE_UP)
    if code == 13 and _MISSING.search(reason) and "SHADOW" in reason.upper():
        return Meaning("submit_refused", GIVE_UP)  # a file of the access point itself: waiting brings nothing
    if code in (12, 13) and _STALLED.search(reason):
        return Meaning("delivery_stalled", RELEASE)
    if code in (12, 13) and _REFUSED.search(reason):
        return Meaning("delivery_refused", RELEASE)
    if code == 34 and _DISK.search(reason):
        return Meaning("disk_full", GIVE_UP)
    return MEANINGS.get(code, UNKNOWN)
