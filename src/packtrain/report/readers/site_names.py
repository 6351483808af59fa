"""Where a stay on a slot was: the site, as pools of many sites tell it, else what the machine's name says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The plain ones come by `ulog_execute_attrs`; the others are attributes of a job that ask its machine.
_SITES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")
_OF_JOB = ("MachineAttr{}0", "MATCH_{}", "MATCH_EXP_JOB{}", "JOB{}")
_NAMES = (*_SITES, *(form.format(name) for name in _SITES for form in _OF_JOB), "JOB_Site")
_ALIAS = re.compile(r"[?&]alias=([^&>]+)")
_ADDRESS = re.compile(r"<\[?([^\]>?]+?)\]?(?::\d+)?[>?]")
_UNKNOWN = ("", "Unknown", "undefined")


def site_told(facts: Mapping[str, Any]) -> str:
    """What the pool itself calls the site; "" if it does not say."""
    return next((str(facts[name]) for name in _NAMES if str(facts.get(name, "")) not in _UNKNOWN), "")


def machine_of(facts: Mapping[str, Any]) -> str:
    """Of `slot1_1@glidein_7@node3.example.edu` all behind the slot; else the host's name or address."""
    slot = str(facts.get("SlotName", ""))
    if "@" in slot:
        return slot.partition("@")[2]
    host = str(facts.get("ExecuteHost", ""))
    found = _ALIAS.search(host) or _ADDRESS.search(host)
    return found[1] if found else slot or host


def site_of(machine: str) -> str:
    """A guess: a startd with a name of its own, else the domain that the machine is in."""
    own, _, host = machine.rpartition("@")
    if own and not own.startswith("glidein"):
        return own
    domain = host.partition(".")[2]
    return domain if domain and not host.replace(".", "").isdigit() else host
