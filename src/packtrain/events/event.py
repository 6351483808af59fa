"""One event: what happened, said by whom. Unique by (run, job, emitter, seq), so that reading
anything twice changes nothing. docs/formats/events.md describes the JSON form."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from packtrain.errors import FormatError

EVENTS_VERSION = 1
_JSON_KEYS = {
    "run": "run",
    "job": "job",
    "emitter": "by",
    "seq": "seq",
    "kind": "kind",
    "wall": "wall",
    "mono": "mono",
}
_HEADER_TYPES: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "job": (str,),
    "emitter": (str,),
    "seq": (int,),
    "kind": (str,),
    "wall": (int, float),
    "mono": (int, float),
}
_MAX_EXACT_INT = 2**53  # what every reader of JSON keeps exactly


def new_emitter_id(role: str) -> str:
    """A fresh id for a process that emits, e.g. `agent-5f0c2a9e41d7`."""
    return f"{role}-{os.urandom(6).hex()}"


class Event(NamedTuple):
    run: str
    job: str  # "" for what concerns the whole run
    emitter: str
    seq: int  # counts up from 1 for each emitter
    kind: str  # a key of kinds.KINDS; others are kept and skipped
    wall: float  # the emitter's clock, for people; never compared across machines
    mono: float  # the emitter's monotonic clock, for durations
    data: Mapping[str, Any] = MappingProxyType({})

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.run, self.job, self.emitter, self.seq)

    def to_json(self) -> str:
        head = {short: getattr(self, name) for name, short in _JSON_KEYS.items()}
        return json.dumps({"v": EVENTS_VERSION, **head, "data": dict(self.data)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Event:
        """Raises FormatError unless the line is an event of a version we know."""
        try:
            raw = json.loads(line)
            values = {name: raw[short] for name, short in _JSON_KEYS.items()}
            good = raw["v"] == EVENTS_VERSION and isinstance(raw["data"], dict) and _is_valid_header(values)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"not an event: {line[:80]!r} ({error})") from None
        if not good:
            raise FormatError(f"not an event of version {EVENTS_VERSION}: {line[:80]!r}")
        return cls(**values, data=raw["data"])


def _is_valid_header(values: Mapping[str, Any]) -> bool:
    """Whether a store can hold it: exact types (a bool is no int), numbers within reason, whole characters."""
    if not all(type(values[name]) in allowed for name, allowed in _HEADER_TYPES.items()):
        return False
    texts = [value for value in values.values() if isinstance(value, str)]
    numbers = [value for value in values.values() if not isinstance(value, str)]
    return _is_valid_unicode("".join(texts)) and all(abs(number) < _MAX_EXACT_INT for number in numbers)


def _is_valid_unicode(text: str) -> bool:
    """JSON can spell half of a surrogate pair, which is no character."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
