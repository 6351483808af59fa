"""Determines the site and node of a slot session: from the pool's attributes, or guessed from the node's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
