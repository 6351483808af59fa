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

from packtrain.condor.eventlog.classad_format import JsonReader, XmlReader
from packtrain.condor.eventlog.job_event import Broken, Raw
from packtrain.condor.eventlog.log_parser import PartReader
from packtrain.condor.eventlog.text_format import TextReader
from packtrain.condor.eventlog.timestamps import A_DAY_S, Clock

_PIECE = 1 << 20
_LOOK = 1 << 16
_GZIP = b"\x1f\x8b"
_PART = re.compile(r"(.+)\.(old|\d{1,4})")
_FIRST_CONDOR = 567993600.0  # 1988: nothing is older
_FORMS: dict[re.Pattern[bytes], type[PartReader]] = {
    re.compile(rb"^\d{3} \(\d+\.-?\d+\.-?\d+\) \d\d", re.MULTILINE): TextReader,
    re.compile(rb'^\{[^{}]*"EventTypeNumber": ', re.MULTILINE): JsonReader,
    re.compile(rb'^<c>\s*<a n="', re.MULTILINE): XmlReader,
}


def is_log(start: bytes) -> bool:
    """Whether a file that begins so is a user log, of any form, perhaps with noise before its first event."""
    return _form_of(start) is not None


def _form_of(start: bytes) -> type[PartReader] | None:
    """By the event that comes first."""
    first, end = None, min(len(start), _LOOK)
    for mark, form in _FORMS.items():
        found = mark.search(start, 0, end)
        if found:
            first, end = form, found.start()
    return first


def records(path: Path, broken: list[Broken]) -> Iterator[list[Raw]]:
    """The events of one file, in batches. What could not be read is put to `broken`. Raises OSError."""
    reader: PartReader | None = None
    for piece in pieces(path):
        reader = reader or (_form_of(piece) or TextReader)(_clock_of(path))
        yield reader.feed(piece)
        _move(reader, broken)
    if reader is not None:
        yield reader.end()
        _move(reader, broken)


def _clock_of(path: Path) -> Clock:
    """A broken year would make years of an attempt. Copies may be older than what they tell, so today counts, too."""
    written = path.stat().st_mtime
    return Clock(written, (_FIRST_CONDOR, max(written, time.time()) + 2 * A_DAY_S))


def _move(reader: PartReader, broken: list[Broken]) -> None:
    broken += reader.broken
    reader.broken.clear()


def start_of(path: Path) -> bytes:
    """Enough to tell what it is. Raises OSError."""
    return next(pieces(path, _LOOK), b"")


def pieces(path: Path, size: int = _PIECE) -> Iterator[bytes]:
    """The bytes of a file, unpacked if it is compressed. Raises OSError."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        yield from _unpacked(file, size) if packed else iter(lambda: file.read(size), b"")


def _unpacked(file: IO[bytes], size: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        while True:
            try:
                piece = stream.read1(size)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return  # cut off
            if not piece:
                return
            yield piece


def families(paths: Iterable[Path]) -> list[list[Path]]:
    """Logs, each with its rotated parts, the oldest first; in the order in which they were named."""
    every = list(paths)
    names = {_plain(path) for path in every}
    found: dict[Path, dict[Path, None]] = {}
    for path in every:
        found.setdefault(_log_of(path, names), {})[path] = None
    return [_in_order(log, {**named, **dict.fromkeys(_parts_of(log, named))}) for log, named in found.items()]


def _plain(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def _log_of(path: Path, names: Container[Path]) -> Path:
    """The log that a file is, or is a rotated part of. A number may as well be that of a process."""
    match = _PART.fullmatch(_plain(path).name)
    if match is None:
        return _plain(path)
    log = path.with_name(match[1])
    rotated = match[2] == "old" or log in names or any(map(_tells, _beside(log, "", ".old")))
    return log if rotated else _plain(path)


def _tells(path: Path) -> bool:
    try:
        return is_log(start_of(path))
    except OSError:
        return False


def _parts_of(log: Path, named: Iterable[Path]) -> Iterator[Path]:
    """What lies beside a log that was named itself; nobody needs to know that it was rotated."""
    if log not in {_plain(path) for path in named}:
        return
    numbers = ["old"]
    number = 1
    while any(_beside(log, f".{number}")):
        numbers.append(str(number))
        number += 1
    for name in numbers:
        yield from _beside(log, f".{name}")[:1]


def _beside(log: Path, *ends: str) -> Sequence[Path]:
    """Files of its name with one of these ends, plain or compressed."""
    names = (f"{log.name}{end}{packed}" for end in ends for packed in ("", ".gz"))
    return [log.with_name(name) for name in names if log.with_name(name).is_file()]


def _in_order(log: Path, parts: Iterable[Path]) -> list[Path]:
    """The oldest first."""
    return sorted(parts, key=lambda path: _age(_plain(path).name[len(log.name) + 1 :]))


def _age(part: str) -> int:
    """To sort by: of the log itself, of its parts with numbers, of the one that is called old."""
    return 0 if not part else -int(part) if part.isdecimal() else -(1 << 30)
