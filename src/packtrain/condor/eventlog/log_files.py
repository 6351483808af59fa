"""Logs as files: which belong together, which form they have, reading them piece by piece.

A log that was rotated is read with its older parts: `log.old`, or `log.1` (the newest of them) to `log.9`. Where no
`log` is beside it, `log.1` is a log of its own: people name logs by their processes, too. Any of them may be compressed
(`.gz`). A compressed file that is cut off gives what can be read of it.
"""

from __future__ import annotations

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
_MIN_EVENT_AT = 567993600.0  # 1988: nothing is older
_FORMATS: dict[re.Pattern[bytes], type[EventLogParser]] = {
    re.compile(rb"^\d{3} \(\d+\.-?\d+\.-?\d+\) \d\d", re.MULTILINE): TextLogParser,
    re.compile(rb'^\{[^{}]*"EventTypeNumber": ', re.MULTILINE): JsonLogParser,
    re.compile(rb'^<c>\s*<a n="', re.MULTILINE): XmlLogParser,
}


def is_event_log(head: bytes) -> bool:
    """Whether a file that begins so is a user log, of any form, perhaps with noise before its first event."""
    return _detect_format(head) is not None


def _detect_format(head: bytes) -> type[EventLogParser] | None:
    """By the event that comes first."""
    first, end = None, min(len(head), _SNIFF_BYTES)
    for mark, form in _FORMATS.items():
        found = mark.search(head, 0, end)
        if found:
            first, end = form, found.start()
    return first


def read_events(path: Path, unreadable: list[UnreadableEvent]) -> Iterator[list[EventTuple]]:
    """The events of one file, in batches. What could not be read is put to `broken`. Raises OSError."""
    reader: EventLogParser | None = None
    for piece in read_chunks(path):
        reader = reader or (_detect_format(piece) or TextLogParser)(_timestamp_parser(path))
        yield reader.feed(piece)
        _collect_unreadable(reader, unreadable)
    if reader is not None:
        yield reader.finish()
        _collect_unreadable(reader, unreadable)


def _timestamp_parser(path: Path) -> TimestampParser:
    """A broken year would make years of an attempt. Copies may be older than what they tell, so today counts, too."""
    written = path.stat().st_mtime
    return TimestampParser(written, (_MIN_EVENT_AT, max(written, time.time()) + 2 * DAY_S))


def _collect_unreadable(parser: EventLogParser, unreadable: list[UnreadableEvent]) -> None:
    unreadable += parser.unreadable
    parser.unreadable.clear()


def read_head(path: Path) -> bytes:
    """Enough to tell what it is. Raises OSError."""
    return next(read_chunks(path, _SNIFF_BYTES), b"")


def read_chunks(path: Path, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of a file, unpacked if it is compressed. Raises OSError."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        yield from _read_gzip(file, chunk_bytes) if packed else iter(lambda: file.read(chunk_bytes), b"")


def _read_gzip(file: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        while True:
            try:
                piece = stream.read1(chunk_bytes)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return  # cut off
            if not piece:
                return
            yield piece


def group_rotated_logs(paths: Iterable[Path]) -> list[list[Path]]:
    """Logs, each with its rotated parts, the oldest first; in the order in which they were named."""
    every = list(paths)
    names = {_without_gz(path) for path in every}
    found: dict[Path, dict[Path, None]] = {}
    for path in every:
        found.setdefault(_base_log(path, names), {})[path] = None
    return [_oldest_first(log, {**named, **dict.fromkeys(_rotated_parts(log, named))}) for log, named in found.items()]


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def _base_log(path: Path, names: Container[Path]) -> Path:
    """The log that a file is, or is a rotated part of. A number may as well be that of a process."""
    match = _ROTATED_NAME.fullmatch(_without_gz(path).name)
    if match is None:
        return _without_gz(path)
    log = path.with_name(match[1])
    rotated = match[2] == "old" or log in names or any(map(_is_event_log_file, _existing_files(log, "", ".old")))
    return log if rotated else _without_gz(path)


def _is_event_log_file(path: Path) -> bool:
    try:
        return is_event_log(read_head(path))
    except OSError:
        return False


def _rotated_parts(log: Path, named_paths: Iterable[Path]) -> Iterator[Path]:
    """What lies beside a log that was named itself; nobody needs to know that it was rotated."""
    if log not in {_without_gz(path) for path in named_paths}:
        return
    numbers = ["old"]
    number = 1
    while any(_existing_files(log, f".{number}")):
        numbers.append(str(number))
        number += 1
    for name in numbers:
        yield from _existing_files(log, f".{name}")[:1]


def _existing_files(log: Path, *suffixes: str) -> Sequence[Path]:
    """Files of its name with one of these ends, plain or compressed."""
    names = (f"{log.name}{end}{packed}" for end in suffixes for packed in ("", ".gz"))
    return [log.with_name(name) for name in names if log.with_name(name).is_file()]


def _oldest_first(log: Path, parts: Iterable[Path]) -> list[Path]:
    """The oldest first."""
    return sorted(parts, key=lambda path: _rotation_order(_without_gz(path).name[len(log.name) + 1 :]))


def _rotation_order(suffix: str) -> int:
    """To sort by: of the log itself, of its parts with numbers, of the one that is called old."""
    return 0 if not suffix else -int(suffix) if suffix.isdecimal() else -(1 << 30)
