"""The forms of ads: one ClassAd an event, as JSON or as XML, one behind the other.

    {                                          <c>
      "MyType": "ExecuteEvent",                    <a n="MyType"><s>ExecuteEvent</s></a>
      "EventTypeNumber": 1,                        <a n="EventTypeNumber"><i>1</i></a>
    }                                          </c>

Ads inside of an event's (what a machine says of itself) are taken as part of it. Attributes are read line by line where
an event as a whole cannot be: a line of noise costs no event.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from html import unescape
from typing import Any

from packtrain.condor.eventlog.job_event import Raw
from packtrain.condor.eventlog.log_parser import PartReader, start_of

_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_MEMBER = re.compile(r'^\s*("\w+"): (.*?),?\s*$', re.MULTILINE)
_ELEMENT = re.compile(r'<a n="(\w+)">\s*<(\w+)(?: v="(\w)")?\s*(?:/>|>(.*?)</\2>)\s*</a>', re.DOTALL)
_INNER_AD = re.compile(r'<a n="\w+">\s*<c>|</c>\s*</a>')
_NUMBERS = {"i": int, "r": float}
_NAMELESS = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|</?classads>", re.DOTALL)


class _AdReader(PartReader):
    START: re.Pattern[bytes]

    def _raws(self, whole: bytes) -> list[Raw]:
        found: list[Raw] = []
        offset = self.offset
        for part in whole.split(self.END):
            starts = [start.start() for start in self.START.finditer(part)]
            self._skip_before(part, starts, whole, offset)
            if starts:
                text = part[starts[-1] :].decode("utf-8", "replace")
                raw = self._raw(self._ad(text), offset + starts[-1])
                if raw is not None:
                    found.append(raw)
                else:
                    self._skip(self._line_of(whole, offset + starts[-1]), f"not a whole event: {start_of(text)}")
            offset += len(part) + len(self.END)
        return found

    def _raw(self, ad: dict[str, Any], offset: int) -> Raw | None:
        found = _TIME.fullmatch(str(ad.get("EventTime", "")))
        code, cluster, proc = ad.get("EventTypeNumber"), ad.get("Cluster"), ad.get("Proc", -1)
        if found is None or not (type(code) is type(cluster) is type(proc) is int):
            return None
        minute, second, fraction, zone = found.groups()
        try:
            when = self._clock.minute(minute, zone or "") + int(second) + float(fraction or 0)
        except ValueError:
            return None
        return (offset, code, (cluster, proc), when, b"", ad)

    @abstractmethod
    def _ad(self, text: str) -> dict[str, Any]:
        """All attributes of one event, without its end."""


class JsonReader(_AdReader):
    START = re.compile(rb"^\{", re.MULTILINE)
    END = b"\n}\n"

    def _ad(self, text: str) -> dict[str, Any]:
        try:
            whole = json.loads(text + "\n}")
        except (ValueError, RecursionError):
            whole = dict(_members(text))
        if not isinstance(whole, dict):
            return {}
        inner = [ad for ad in whole.values() if isinstance(ad, dict)]
        return {name: value for ad in (*inner, whole) for name, value in ad.items()}


def _members(text: str) -> Iterator[tuple[str, Any]]:
    for name, value in _MEMBER.findall(text):
        try:
            yield json.loads(name), json.loads(value)
        except (ValueError, RecursionError):
            continue


class XmlReader(_AdReader):
    START = re.compile(rb"^<c>", re.MULTILINE)
    END = b"\n</c>\n"

    def _ad(self, text: str) -> dict[str, Any]:
        return {name: _value(*element) for name, *element in _ELEMENT.findall(_INNER_AD.sub("", text))}

    @staticmethod
    def _is_nothing(text: str) -> bool:
        return not _NAMELESS.sub("", text).strip()


def _value(kind: str, truth: str, text: str) -> Any:
    if kind == "b":
        return truth == "t"
    try:
        return _NUMBERS[kind](text) if kind in _NUMBERS else unescape(text)
    except ValueError:
        return None
