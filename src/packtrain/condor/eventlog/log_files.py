"""Opens event logs: groups rotated files, detects the format, and reads in chunks.

A rotated log is read with its older parts: `log.old`, or `log.1` (the newest) to `log.9`. Without a `log` next to it,
`log.1` is a log of its own, because users also name logs after process numbers. All files may be compressed (`.gz`).
Of a truncated compressed file, everything up to the damage is read.
"""

from __future__ import annotations

import codecs
import gzip
import re
import time
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from packtrain.condor.eventlog.classad_format import JsonLogParser, XmlLogParser
from packtrain.condor.eventlog.job_event import EventTuple, UnreadableEvent
from packtrain.condor.eventlog.log_parser import EventLogParser
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import DAY_S, TimestampParser

_CHUNK_BYTES = 1 << 20
_SNIFF_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_ROTATED_NAME = re.compile(r"(.+)\.(old|\d{1,4})")
_MIN_EVENT_AT = 567993600.0  # 1988, the first year of HTCondor
_FORMATS: dict[re.Pattern[bytes], type[EventLogParser]] = {
    re.compile(rb"^\d{3} \(\d+\.-?\d+\.-?\d+\) \d\d", re.MULTILINE): TextLogParser,
    re.compile(rb'^\{[^{}]*"EventTypeNumber": ', re.MULTILINE): JsonLogParser,
    re.compile(rb'^<c>\s*<a n="', re.MULTILINE): XmlLogParser,
}


def is_event_log(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an event log of any format, even after some noise."""
    return _detect_format(head) is not None


def _detect_format(head: bytes) -> type[EventLogParser] | None:
    """Return the parser for the format of the first event."""
    parser, end = None, min(len(head), _SNIFF_BYTES)
    for pattern, candidate in _FORMATS.items():
        match = pattern.search(head, 0, end)
        if match:
            parser, end = candidate, match.start()
    return parser


def read_events(path: Path, unreadable: list[UnreadableEvent]) -> Iterator[list[EventTuple]]:
    """Yield the events of one file in batches. Raises OSError.

    Args:
        path: A log of any format, plain or compressed.
        unreadable: Parts that could not be parsed are appended to it.
    """
    parser: EventLogParser | None = None
    for chunk in read_chunks(path):
        parser = parser or (_detect_format(chunk) or TextLogParser)(_timestamp_parser(path))
        yield parser.feed(chunk)
        _collect_unreadable(parser, unreadable)
    if parser is not None:
        yield parser.finish()
        _collect_unreadable(parser, unreadable)


def _timestamp_parser(path: Path) -> TimestampParser:
    """Return a parser that rejects impossible times: a damaged year would give an execution of many years.

    The modification time of a copied file may be earlier than its events, so the current time is allowed, too.
    """
    modified_at = path.stat().st_mtime
    return TimestampParser(modified_at, (_MIN_EVENT_AT, max(modified_at, time.time()) + 2 * DAY_S))


def _collect_unreadable(parser: EventLogParser, unreadable: list[UnreadableEvent]) -> None:
    unreadable += parser.unreadable
    parser.unreadable.clear()


def read_head(path: Path) -> bytes:
    """Return the beginning of a file, enough to detect its format. Raises OSError."""
    return next(read_chunks(path, _SNIFF_BYTES), b"")


def read_chunks(path: Path, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if necessary. Raises OSError."""
    with open(path, "rb") as file:
        is_compressed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        chunks = _read_gzip(file, chunk_bytes) if is_compressed else iter(lambda: file.read(chunk_bytes), b"")
        yield next(chunks, b"").removeprefix(codecs.BOM_UTF8)  # an editor may have added it
        yield from chunks


def _read_gzip(file: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        while True:
            try:
                chunk = stream.read1(chunk_bytes)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return  # truncated
            if not chunk:
                return
            yield chunk


def group_rotated_logs(paths: Iterable[Path]) -> list[list[Path]]:
    """Group log files with their rotated parts, oldest part first, in the order of `paths`.

    Rotated parts of a log in `paths` are added even if they are not in `paths` themselves.
    """
    all_paths = list(paths)
    logs = {_without_gz(path) for path in all_paths}
    groups: dict[Path, dict[Path, None]] = {}
    for path in all_paths:
        groups.setdefault(_base_log(path, logs), {})[path] = None
    return [_oldest_first(log, {**given, **dict.fromkeys(_rotated_parts(log, given))}) for log, given in groups.items()]


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def _base_log(path: Path, logs: Container[Path]) -> Path:
    """Return the log that a file is, or is a rotated part of. A number may also be a process number."""
    match = _ROTATED_NAME.fullmatch(_without_gz(path).name)
    if match is None:
        return _without_gz(path)
    log = path.with_name(match[1])
    is_rotated = match[2] == "old" or log in logs or any(map(_is_event_log_file, _existing_files(log, "", ".old")))
    return log if is_rotated else _without_gz(path)


def _is_event_log_file(path: Path) -> bool:
    try:
        return is_event_log(read_head(path))
    except OSError:
        return False


def _rotated_parts(log: Path, given_paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the rotated parts that exist next to a log, if the log itself was given."""
    if log not in {_without_gz(path) for path in given_paths}:
        return
    suffixes = ["old"]
    number = 1
    while any(_existing_files(log, f".{number}")):
        suffixes.append(str(number))
        number += 1
    for suffix in suffixes:
        yield from _existing_files(log, f".{suffix}")[:1]


def _existing_files(log: Path, *suffixes: str) -> Sequence[Path]:
    """Return the files with the log's name and one of these suffixes, plain or compressed."""
    names = (f"{log.name}{suffix}{gz}" for suffix in suffixes for gz in ("", ".gz"))
    return [log.with_name(name) for name in names if log.with_name(name).is_file()]


def _oldest_first(log: Path, parts: Iterable[Path]) -> list[Path]:
    return sorted(parts, key=lambda path: _rotation_order(_without_gz(path).name[len(log.name) + 1 :]))


def _rotation_order(suffix: str) -> int:
    """Return a sort key: `old` is the oldest, then the highest number, and the log itself is the newest."""
    return 0 if not suffix else -int(suffix) if suffix.isdecimal() else -(1 << 30)
