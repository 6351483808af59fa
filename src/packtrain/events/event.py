"""The event type and its JSON form, which docs/formats/events.md describes.

An event is unique by (run, job, emitter, seq), so reading anything twice changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from packtrain.errors import FormatError

EVENTS_VERSION = 2
_HEADER_TYPES: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "job": (str,),
    "emitter": (str,),
    "seq": (int,),
    "kind": (str,),
    "wall": (int, float),
    "mono": (int, float),
}
_MAX_EXACT_INT = 2**53  # every JSON reader represents smaller integers exactly


def new_emitter_id(role: str) -> str:
    """Return a new id for a process that emits events, e.g. `agent-5f0c2a9e41d7`."""
    return f"{role}-{os.urandom(6).hex()}"


class Event(NamedTuple):
    """One entry in the history of a run."""

    run: str
    job: str  # "" if the event concerns the whole run
    emitter: str
    seq: int  # 1, 2, … per emitter
    kind: str  # a key of kinds.EVENT_KINDS; unknown kinds are stored and ignored
    wall: float  # the emitter's clock (Unix time), for display; never compared across machines
    mono: float  # the emitter's monotonic clock, in seconds, for durations
    data: Mapping[str, Any] = MappingProxyType({})

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.run, self.job, self.emitter, self.seq)

    def to_json(self) -> str:
        header = {name: getattr(self, name) for name in _HEADER_TYPES}
        return json.dumps({"v": EVENTS_VERSION, **header, "data": dict(self.data)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Event:
        """Parse a line of a journal. Raises FormatError if it is not an event of a known version."""
        try:
            raw = json.loads(line)
            header = {name: raw[name] for name in _HEADER_TYPES}
            is_valid = raw["v"] == EVENTS_VERSION and isinstance(raw["data"], dict) and _is_valid_header(header)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"not an event: {line[:80]!r} ({error})") from None
        if not is_valid:
            raise FormatError(f"not an event of version {EVENTS_VERSION}: {line[:80]!r}")
        return cls(**header, data=raw["data"])


def _is_valid_header(values: Mapping[str, Any]) -> bool:
    """Return whether a store can hold the header: exact types (a bool is no int), exact numbers, valid Unicode."""
    if not all(type(values[name]) in allowed for name, allowed in _HEADER_TYPES.items()):
        return False
    texts = [value for value in values.values() if isinstance(value, str)]
    numbers = [value for value in values.values() if not isinstance(value, str)]
    return _is_valid_unicode("".join(texts)) and all(abs(number) < _MAX_EXACT_INT for number in numbers)


def _is_valid_unicode(text: str) -> bool:
    """Return False for unpaired surrogates, which JSON can express but UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
