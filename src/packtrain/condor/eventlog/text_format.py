"""The text form, from bytes as they come.

    001 (012.003.000) 2026-11-16 02:13:28 Job executing on host: <127.0.0.1:9618?…>
        SlotName: slot1_1@site2
        GLIDEIN_ResourceName = "PDX-Coeus-CE1"
    ...

An event ends with a line of three dots. What stands between the events is noise: it is counted and skipped. A head
inside of an event begins another one, since the first was never finished (its writer died).
"""

from __future__ import annotations

import re

from packtrain.condor.eventlog.job_event import Key, Raw
from packtrain.condor.eventlog.log_parser import PartReader, start_of
from packtrain.condor.eventlog.timestamps import Clock

_HEAD = re.compile(
    rb"(\d{3}) \((\d+)\.(-?\d+)\.-?\d+\) (\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d/\d\d \d\d:\d\d):(\d\d)"
    rb"(\.\d+)?(Z|[+-]\d\d:?\d\d)?(?: |$)",
    re.MULTILINE,
)
_INNER = re.compile(rb"^\d{3} \(", re.MULTILINE)
_NOTHING = re.compile(r"[\s.]*")
_MOST_KNOWN = 50_000


class TextReader(PartReader):
    """Heads are much alike. What was once read by the pattern (a code, a job's number, a time) is known by its bytes
    from then on, and looking it up is several times faster than the pattern is."""

    END = b"\n...\n"

    def __init__(self, clock: Clock, offset: int = 0) -> None:
        super().__init__(clock, offset)
        self._codes: dict[bytes, int] = {}
        self._keys: dict[bytes, Key] = {}
        self._times: dict[bytes, float] = {}

    def _raws(self, whole: bytes) -> list[Raw]:
        """The hot loop."""
        found: list[Raw] = []
        add, offset, size = found.append, self.offset, len(self.END)
        codes, keys, times = self._codes, self._keys, self._times
        parts = whole.split(self.END)
        clean = _is_clean(whole, len(parts))
        for part in parts:
            named = part.find(b")")
            told = named + 22
            if clean or b"\n0" not in part:
                try:
                    add((offset, codes[part[:5]], keys[part[5:named]], times[part[named:told]], part[told:], None))
                except KeyError:
                    found += self._read(part, offset, whole)
            else:
                found += self._among_noise(part, offset, whole)
            offset += len(part) + size
        return found

    def _read(self, part: bytes, offset: int, whole: bytes) -> list[Raw]:
        """By the pattern."""
        head = _HEAD.match(part)
        raw = self._raw(part, head, offset) if head else None
        return [raw] if raw is not None else self._among_noise(part, offset, whole)

    def _among_noise(self, part: bytes, offset: int, whole: bytes) -> list[Raw]:
        starts = [found.start() for found in _INNER.finditer(part) if _HEAD.match(part, found.start())]
        self._skip_before(part, starts, whole, offset)
        head = _HEAD.match(part, starts[-1]) if starts else None
        if head is None:
            return []
        raw = self._raw(part, head, offset + starts[-1])
        if raw is None:
            text = part[starts[-1] :].decode("utf-8", "replace")
            self._skip(self._line_of(whole, offset + starts[-1]), f"no such time or job: {start_of(text)}")
        return [raw] if raw is not None else []

    def _raw(self, part: bytes, head: re.Match[bytes], offset: int) -> Raw | None:
        code, cluster, proc, minute, second, fraction, zone = head.groups()
        try:
            when = self._clock.minute(minute.decode(), (zone or b"").decode()) + int(second)
            key = (int(cluster), int(proc))
        except ValueError:  # Python refuses numbers of thousands of digits, too
            return None
        if not zone and not fraction and len(minute) == 16 and head.end() < len(part):
            self._learn(part[head.start() : head.end()], int(code), key, when)
        return (offset, int(code), key, when + float(fraction or 0), part[head.end() :], None)

    def _learn(self, head: bytes, code: int, key: Key, when: float) -> None:
        named = head.find(b")")
        for known in (self._keys, self._times):
            if len(known) > _MOST_KNOWN:
                known.clear()
        self._codes[head[:5]] = code
        self._keys[head[5:named]] = key
        self._times[head[named:]] = when

    @staticmethod
    def _is_nothing(text: str) -> bool:
        return _NOTHING.fullmatch(text) is not None


def _is_clean(whole: bytes, parts: int) -> bool:
    """Whether no line begins with a 0, as heads do, but the first of each part. Two counts are much faster than a look
    into each part."""
    return whole.count(b"\n0") == whole.count(TextReader.END + b"0") == parts - 1
