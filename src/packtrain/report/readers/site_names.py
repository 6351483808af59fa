"""Where a stay on a slot was: the site, as pools of many sites tell it, else what the machine's name says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The plain ones come by `ulog_execute_attrs`; the others are attributes of a job that ask its machine.
_SITE_ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")
_JOB_ATTRIBUTE_FORMATS = ("MachineAttr{}0", "MATCH_{}", "MATCH_EXP_JOB{}", "JOB{}")
_ALL_SITE_ATTRIBUTES = (
    *_SITE_ATTRIBUTES,
    *(form.format(name) for name in _SITE_ATTRIBUTES for form in _JOB_ATTRIBUTE_FORMATS),
    "JOB_Site",
)
_ALIAS_PATTERN = re.compile(r"[?&]alias=([^&>]+)")
_ADDRESS_PATTERN = re.compile(r"<\[?([^\]>?]+?)\]?(?::\d+)?[>?]")
_UNDEFINED_VALUES = ("", "Unknown", "undefined")


def site_from_attributes(attributes: Mapping[str, Any]) -> str:
    """What the pool itself calls the site; "" if it does not say."""
    return next(
        (
            str(attributes[name])
            for name in _ALL_SITE_ATTRIBUTES
            if str(attributes.get(name, "")) not in _UNDEFINED_VALUES
        ),
        "",
    )


def node_from_attributes(attributes: Mapping[str, Any]) -> str:
    """Of `slot1_1@glidein_7@node3.example.edu` all behind the slot; else the host's name or address."""
    slot = str(attributes.get("SlotName", ""))
    if "@" in slot:
        return slot.partition("@")[2]
    host = str(attributes.get("ExecuteHost", ""))
    found = _ALIAS_PATTERN.search(host) or _ADDRESS_PATTERN.search(host)
    return found[1] if found else slot or host


def guess_site(node: str) -> str:
    """A guess: a startd with a name of its own, else the domain that the machine is in."""
    own, _, host = node.rpartition("@")
    if own and not own.startswith("glidein"):
        return own
    domain = host.partition(".")[2]
    return domain if domain and not host.replace(".", "").isdigit() else host
