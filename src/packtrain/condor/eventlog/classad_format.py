"""Parses event logs in the JSON and XML formats: one ClassAd per event.

    {                                          <c>
      "MyType": "ExecuteEvent",                    <a n="MyType"><s>ExecuteEvent</s></a>
      "EventTypeNumber": 1,                        <a n="EventTypeNumber"><i>1</i></a>
    }                                          </c>

Nested ads, such as that of the machine, are merged into the event's ad. If the JSON of an event is invalid, its
attributes are parsed line by line, so that one damaged line does not lose the event.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from html import unescape
from typing import Any

from packtrain.condor.eventlog.job_event import EventTuple
from packtrain.condor.eventlog.log_parser import EventLogParser, excerpt

_EVENT_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_JSON_MEMBER = re.compile(r'^\s*("\w+"): (.*?),?\s*$', re.MULTILINE)
_XML_ATTRIBUTE = re.compile(r'<a n="(\w+)">\s*<(\w+)(?: v="(\w)")?\s*(?:/>|>(.*?)</\2>)\s*</a>', re.DOTALL)
_NESTED_AD = re.compile(r'<a n="\w+">\s*<c>|</c>\s*</a>')
_XML_NUMBERS = {"i": int, "r": float}
_XML_WRAPPER = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|</?classads>", re.DOTALL)


class _ClassAdLogParser(EventLogParser):
    START_PATTERN: re.Pattern[bytes]  # matches where an event begins

    def _parse_events(self, data: bytes) -> list[EventTuple]:
        events: list[EventTuple] = []
        offset = self.offset
        for part in data.split(self.END_MARKER):
            starts = [start.start() for start in self.START_PATTERN.finditer(part)]
            self._skip_noise(part, starts, data, offset)
            if starts:
                text = part[starts[-1] :].decode("utf-8", "replace")
                event = self._event_from_ad(self._parse_ad(text), offset + starts[-1])
                if event is not None:
                    events.append(event)
                else:
                    line_number = self._line_number_at(data, offset + starts[-1])
                    self._add_unreadable(line_number, f"incomplete event: {excerpt(text)}")
            offset += len(part) + len(self.END_MARKER)
        return events

    def _event_from_ad(self, ad: dict[str, Any], offset: int) -> EventTuple | None:
        event_time = _EVENT_TIME.fullmatch(str(ad.get("EventTime", "")))
        event_type, cluster, proc = ad.get("EventTypeNumber"), ad.get("Cluster"), ad.get("Proc", -1)
        if event_time is None or not (type(event_type) is type(cluster) is type(proc) is int):
            return None
        minute, second, fraction, zone = event_time.groups()
        try:
            timestamp = self._timestamps.parse_minute(minute, zone or "") + int(second) + float(fraction or 0)
        except ValueError:
            return None
        return (offset, event_type, (cluster, proc), timestamp, b"", ad)

    @abstractmethod
    def _parse_ad(self, text: str) -> dict[str, Any]:
        """Return the attributes of one event. `text` does not include the end marker."""


class JsonLogParser(_ClassAdLogParser):
    """Parses logs in the JSON format."""

    START_PATTERN = re.compile(rb"^\{", re.MULTILINE)
    END_MARKER = b"\n}\n"

    def _parse_ad(self, text: str) -> dict[str, Any]:
        try:
            event_ad = json.loads(text + "\n}")
        except (ValueError, RecursionError):
            event_ad = dict(_parse_members(text))
        if not isinstance(event_ad, dict):
            return {}
        nested_ads = [ad for ad in event_ad.values() if isinstance(ad, dict)]
        return {name: value for ad in (*nested_ads, event_ad) for name, value in ad.items()}


def _parse_members(text: str) -> Iterator[tuple[str, Any]]:
    for name, value in _JSON_MEMBER.findall(text):
        try:
            yield json.loads(name), json.loads(value)
        except (ValueError, RecursionError):
            continue


class XmlLogParser(_ClassAdLogParser):
    """Parses logs in the XML format."""

    START_PATTERN = re.compile(rb"^<c>", re.MULTILINE)
    END_MARKER = b"\n</c>\n"

    def _parse_ad(self, text: str) -> dict[str, Any]:
        return {name: _parse_xml_value(*element) for name, *element in _XML_ATTRIBUTE.findall(_NESTED_AD.sub("", text))}

    @staticmethod
    def _is_blank(text: str) -> bool:
        return not _XML_WRAPPER.sub("", text).strip()


def _parse_xml_value(tag: str, bool_text: str, text: str) -> Any:
    if tag == "b":
        return bool_text == "t"
    try:
        return _XML_NUMBERS[tag](text) if tag in _XML_NUMBERS else unescape(text)
    except ValueError:
        return None
