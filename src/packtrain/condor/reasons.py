"""Reasons of holds and evictions, rewritten so that the cause comes first.

HTCondor begins with where something failed, often with two host names, and names the cause at the end, which narrow
tables and hurried readers do not reach.
"""

from __future__ import annotations

import re

_PLACES = (
    r"Transfer (?:in|out)put files failure\b.*?\. Details",
    r"Error from [^\s:]+",
    r"(?:STARTER|SHADOW)(?: at \S+)? failed to (?:send|receive) file\(s\) (?:to|from) <[^>]*>",
)
_PLACE_AND_CAUSE = re.compile(rf"({'|'.join(_PLACES)}): (.+)", re.DOTALL)
_NOISE = re.compile(r"^(?:\||Error: |\d+ total failures?: first failure: )+|[\s|]+$")
_NAMES_CAUSE = re.compile(r"errno|error", re.IGNORECASE)


def put_cause_first(reason: str) -> str:
    """Return `CAUSE (PLACE)` for a reason that names the place first; others unchanged."""
    match = _PLACE_AND_CAUSE.fullmatch(reason.strip())
    if match is None:
        return reason
    place, cause = match[1].removesuffix(". Details"), put_cause_first(_NOISE.sub("", match[2]))
    clauses = sorted(cause.split("; "), key=lambda clause: not _NAMES_CAUSE.search(clause))
    return f"{'; '.join(clauses)} ({place})"
