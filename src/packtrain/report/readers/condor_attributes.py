"""Interprets the attributes of HTCondor events: how a session or job ended, and where it ran.

The meaning of hold codes is in `packtrain.condor.hold_codes`. VacateReasonCode is documented at
https://htcondor.readthedocs.io, "Job ClassAd Attributes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from packtrain.condor import hold_codes
from packtrain.report.history import FailureCategory, Outcome
from packtrain.report.readers.end_status import EndStatus, category_of

_C = FailureCategory
_TRANSFER_ERROR_PATTERN = re.compile(
    r"transfer|FileTransfer|stall|plugin|failed to (?:send|receive) file", re.IGNORECASE
)
_MISSING_FILE_PATTERN = re.compile(r"reading from file .*\(errno 2\)|No such file or directory")
_POLICY_PATTERN = re.compile(r"The (?:job attribute|system macro) (\w+) ")
# `ulog_execute_attrs` logs the plain names. The formats are job attributes that hold an attribute of the machine.
_SITE_ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")
_JOB_ATTRIBUTE_FORMATS = ("MachineAttr{}0", "MATCH_{}", "MATCH_EXP_JOB{}", "JOB{}")
_ALL_SITE_ATTRIBUTES = (
    *_SITE_ATTRIBUTES,
    *(template.format(name) for name in _SITE_ATTRIBUTES for template in _JOB_ATTRIBUTE_FORMATS),
    "JOB_Site",
)
_ALIAS_PATTERN = re.compile(r"[?&]alias=([^&>]+)")
_ADDRESS_PATTERN = re.compile(r"<\[?([^\]>?]+?)\]?(?::\d+)?[>?]")
_UNDEFINED_VALUES = ("", "Unknown", "undefined")


def classify_hold(code: int, subcode: int, reason: str) -> EndStatus:
    """Classify a hold by its HoldReasonCode, HoldReasonSubCode and HoldReason."""
    message = reason or ("held by a user without a reason" if code == 1 else f"held with code {code}")
    if code == 12 and subcode == 2 and _MISSING_FILE_PATTERN.search(reason):
        return EndStatus(Outcome.WRONG_OUTPUT, _C.WRONG_OUTPUT, message)
    if code not in hold_codes.HOLD_CODES:
        return EndStatus(Outcome.HELD, _C.UNKNOWN, message)
    meaning = hold_codes.classify_hold(code, subcode, reason)
    category = _C(meaning.category) if meaning.category else category_of(meaning.failure_kind)
    return EndStatus(Outcome.TIME_LIMIT if category is _C.TIME_LIMIT else Outcome.HELD, category, message)


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


def site_from_attributes(attributes: Mapping[str, Any]) -> str:
    """Return the pool's own name of the site, or "" if no attribute has it."""
    values = (str(attributes.get(name, "")) for name in _ALL_SITE_ATTRIBUTES)
    return next((value for value in values if value not in _UNDEFINED_VALUES), "")


def node_from_attributes(attributes: Mapping[str, Any]) -> str:
    """Return the slot name without its slot (`slot1_1@glidein_7@node3.example.edu`), or the host name or address."""
    slot = str(attributes.get("SlotName", ""))
    if "@" in slot:
        return slot.partition("@")[2]
    host = str(attributes.get("ExecuteHost", ""))
    match = _ALIAS_PATTERN.search(host) or _ADDRESS_PATTERN.search(host)
    return match[1] if match else slot or host


def guess_site(node: str) -> str:
    """Guess the site: the startd's name if it has its own, otherwise the domain of the node."""
    startd, _, host = node.rpartition("@")
    if startd and not startd.startswith("glidein"):
        return startd
    domain = host.partition(".")[2]
    return domain if domain and not host.replace(".", "").isdigit() else host
