"""The index of a dataset: where each sample lies, memory-mapped (docs/formats/index.md).

`Index.open` reads one, whose columns are flat numbers: no object is made for a sample that nobody asks for. `write`
makes one of a `Draft`. What is in an archive is found out by `build`.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.stream import name_codec as packing
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.urls import joined, shown

SUFFIX = ".packtrain-index"
VERSION = 1
SPANS, FILES = "spans", "files"

_MAGIC = b"PACKTRAIN-INDEX\n"
_HEAD = struct.Struct("<16sII")  # magic, length of the document, its crc32
_ALIGN = 8
_WIDTHS = {"B": 1, "H": 2, "I": 4, "Q": 8}
_OF_SAMPLES = ("offset", "size", "class", "archive")
_OF_PARTS = ("part_offset", "part_size", "part_kind")
_OF_BLOCKS = ("block_size", "digests")  # behind all others


@dataclass(frozen=True)
class Archive:
    """One object that holds samples, as it was when it was indexed; or a folder, whose files are the samples."""

    url: str  # without user, password and query
    size: int
    etag: str = ""
    modified: str = ""  # as the server writes it; where there is no ETag
    mirrors: tuple[str, ...] = ()
    listing: str = ""  # of a folder: sha256 of names and sizes

    def changed(self, info: ObjectInfo) -> str | None:
        """What an answer says that differs, in words. Of a mirror only the size is known."""
        if info.size is not None and info.size != self.size:
            return f"it had {self.size} bytes and now has {info.size}"
        if self.etag and info.etag and self.etag != info.etag:
            return f"its ETag was {self.etag} and now is {info.etag}"
        if not self.etag and self.modified and info.modified and self.modified != info.modified:
            return f"it was last modified {self.modified} and now {info.modified}"
        return None


class Part(NamedTuple):
    """A file of a sample."""

    kind: str  # what follows the first dot of its name: jpg, cls, seg.png
    offset: int  # in the archive
    size: int


class Sample(NamedTuple):
    name: str
    archive: int
    offset: int
    size: int
    label: int  # which of `class_names`


@dataclass(frozen=True)
class _Column:
    name: str
    type: str
    at: int  # behind the document
    count: int


@dataclass(frozen=True)
class _Document:
    version: int
    samples: int
    layout: str
    bytes: int  # of all columns
    crc32: int  # of all columns
    archives: tuple[Archive, ...]
    columns: tuple[_Column, ...]
    classes: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    left_out: int = 0
    choice: str = ""


class Index:
    """`offsets`, `sizes`, `classes` and `archive` have a number for each sample; `block_sizes` has one for each archive
    where checksums of their blocks (`digests`) are known."""

    def __init__(self, path: Path, data: mmap.mmap, document: _Document, start: int) -> None:
        self.path, self._document = path, document
        self._raw = memoryview(data)[start:]
        self.archives, self.class_names, self.kinds = document.archives, document.classes, document.kinds
        self.layout, self.left_out, self.choice = document.layout, document.left_out, document.choice
        self._columns = {c.name: _view(data, start, c) for c in document.columns}
        self.offsets, self.sizes, self.classes, self.archive = (self._columns[name] for name in _OF_SAMPLES)
        self.block_sizes, self.digests = (self._columns.get(name, memoryview(b"")) for name in _OF_BLOCKS)

    @classmethod
    def open(cls, path: Path | str, check: bool = True) -> Index:
        """Raises FormatError, and OSError if there is no such file. `check`: whether all bytes are as written."""
        path = Path(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _HEAD.size:
                raise FormatError(f"{path} is no index: it has {size} bytes only")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        document, start = _document(data, path)
        if len(data) != start + document.bytes:
            raise _damaged(path, f"it has {len(data)} bytes and should have {start + document.bytes}")
        if check and zlib.crc32(memoryview(data)[start:]) != document.crc32:
            raise _damaged(path, "its columns are not as they were written")
        return cls(path, data, document, start)

    def __reduce__(self) -> tuple[object, ...]:
        return Index.open, (self.path, False)

    def __len__(self) -> int:
        return self._document.samples

    @property
    def mark(self) -> str:
        """Of the samples and their order: the same ones have the same, wherever they are to be had."""
        about = self._document
        text = json.dumps([about.layout, about.classes, about.kinds, [one.size for one in about.archives]])
        others = [column.at for column in about.columns if column.name in _OF_BLOCKS]
        crc32 = zlib.crc32(self._raw[: min(others)]) if others else about.crc32
        return f"{crc32:08x}{zlib.crc32(text.encode()):08x}"

    @property
    def stamp(self) -> str:
        """Tells this index from any other: an archive that was changed, or lies elsewhere, makes another."""
        return f"{self._document.crc32:08x}{zlib.crc32(_text(self._document)):08x}"

    @property
    def grouped(self) -> bool:
        """Whether samples have several parts."""
        return "part_first" in self._columns

    def sample(self, number: int) -> Sample:
        at = self._at(number)
        return Sample(self.name(at), self.archive[at], self.offsets[at], self.sizes[at], self.classes[at])

    def name(self, number: int) -> str:
        block, behind = divmod(self._at(number), packing.RESTART)
        found = packing.unpack(self._columns["names"], self._columns["name_blocks"][block])
        return next(name for place, name in enumerate(found) if place == behind)

    def names(self) -> Iterator[str]:
        """All of them, in order: quicker than one by one."""
        return packing.unpack(self._columns["names"], 0)

    def parts(self, number: int) -> list[Part]:
        """Where the files of a sample lie. A sample that is a single file has one."""
        at = self._at(number)
        if not self.grouped:
            return [Part(ending(self.name(at)), self.offsets[at], self.sizes[at])]
        first, stop = self._columns["part_first"][at], self._columns["part_first"][at + 1]
        offset, size, kind = (self._columns[name] for name in _OF_PARTS)
        base = self.offsets[at]
        return [Part(self.kinds[kind[p]], base + offset[p], size[p]) for p in range(first, stop)]

    def address(self, number: int) -> str:
        """Of the object that holds the sample."""
        archive = self.archives[self.archive[number]]
        return joined(archive.url, self.name(number)) if self.layout == FILES else archive.url

    def _at(self, number: int) -> int:
        at = number + len(self) if number < 0 else number
        if not 0 <= at < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return at


def bare(url: str) -> str:
    """Without user, password and query, which may be secret; an index is for anybody."""
    text = shown(url)
    return text[: -len("?…")] if text.endswith("?…") else text


def ending(name: str) -> str:
    """What follows the first dot of the last name of a path."""
    return name.rpartition("/")[2].partition(".")[2]


def _view(data: mmap.mmap, start: int, column: _Column) -> memoryview:
    begin = start + column.at
    view = memoryview(data)[begin : begin + column.count * _WIDTHS[column.type]]
    return view.cast(cast("Literal['B', 'H', 'I', 'Q']", column.type))


def _document(data: mmap.mmap, path: Path) -> tuple[_Document, int]:
    magic, length, crc32 = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"{path} is no index of packtrain; `packtrain index` makes one")
    if sys.byteorder != "little":
        raise FormatError(f"{path} cannot be read on this machine, whose numbers have their highest byte first")
    start = _HEAD.size + length
    text = data[_HEAD.size : start]
    if len(text) != length or zlib.crc32(text) != crc32:
        raise _damaged(path, "its first part is not as it was written")
    return _decoded(text, path), start


def _decoded(text: bytes, path: Path) -> _Document:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != VERSION:
        raise FormatError(f"{path} is an index of version {version}; this packtrain reads {VERSION}: make it anew")
    document = decode(_Document, raw, str(path))
    _check(document, path)
    return document


def _check(document: _Document, path: Path) -> None:
    """What the document promises must be inside of the file, and of the right number."""
    counts = {column.name: column.count for column in document.columns}
    for column in document.columns:
        end = column.at + column.count * _WIDTHS.get(column.type, -1)
        if min(column.at, column.count) < 0 or not column.at <= end <= document.bytes or column.type not in _WIDTHS:
            raise _damaged(path, f"its column {column.name!r} is not inside of it")
    blocks = -(-document.samples // packing.RESTART)
    wanted = {**dict.fromkeys(_OF_SAMPLES, document.samples), "name_blocks": blocks}
    if "part_first" in counts:
        wanted.update({"part_first": document.samples + 1, **dict.fromkeys(_OF_PARTS, counts.get("part_offset", -1))})
    if "block_size" in counts:
        wanted["block_size"] = len(document.archives)
    wrong = next((name for name, count in wanted.items() if counts.get(name) != count), None)
    if wrong is not None or "names" not in counts or document.layout not in (SPANS, FILES):
        raise _damaged(path, f"its column {wrong!r} is not as long as it should be" if wrong else "it is incomplete")


def _damaged(path: Path, reason: str) -> FormatError:
    return FormatError(f"the index {path} is damaged: {reason}; make it anew with `packtrain index`")


@dataclass
class Draft:
    """What is written. Numbers may be any; a column is as wide as its largest needs."""

    archives: tuple[Archive, ...]
    classes: tuple[str, ...]
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    labels: array[int] = field(default_factory=lambda: array("Q"))
    archive: array[int] = field(default_factory=lambda: array("Q"))
    names: Iterable[str] = ()
    layout: str = SPANS
    kinds: tuple[str, ...] = ()
    part_first: array[int] | None = None  # one more than there are samples
    part_offsets: array[int] = field(default_factory=lambda: array("Q"))  # from the sample's own
    part_sizes: array[int] = field(default_factory=lambda: array("Q"))
    part_kinds: array[int] = field(default_factory=lambda: array("Q"))
    left_out: int = 0
    choice: str = ""  # of samples, where not all were wanted
    block_sizes: array[int] = field(default_factory=lambda: array("Q"))  # of each archive, or none: see `blocks`
    digests: bytes = b""


def write(draft: Draft, path: Path) -> Index:
    """Complete or invisible."""
    document, columns = _composed(draft)
    return _write(document, columns, path)


def rebound(index: Index, archives: tuple[Archive, ...], path: Path) -> Index:
    """The same samples, of archives that lie elsewhere."""
    return _write(replace(index._document, archives=archives), [index._raw], path)


def _write(document: _Document, columns: Sequence[bytes | memoryview], path: Path) -> Index:
    text = _text(document)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(temporary, "wb") as file:
            file.write(_HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text)
            file.writelines(columns)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Index.open(path, check=False)


def _text(document: _Document) -> bytes:
    """The document as it stands in the file, so long that columns begin at multiples of 8."""
    text = json.dumps(encode(document), separators=(",", ":")).encode()
    return text + b" " * (-(_HEAD.size + len(text)) % _ALIGN)


def _composed(draft: Draft) -> tuple[_Document, list[bytes]]:
    packed, starts = packing.pack(draft.names)
    columns = dict(zip(_OF_SAMPLES, (draft.offsets, draft.sizes, draft.labels, draft.archive)))
    columns["name_blocks"] = starts
    if draft.part_first is not None:
        columns["part_first"] = draft.part_first
        columns.update(zip(_OF_PARTS, (draft.part_offsets, draft.part_sizes, draft.part_kinds)))
    narrow = {**{name: narrowed(values) for name, values in columns.items()}, "names": array("B", packed)}
    if draft.block_sizes:
        narrow.update(zip(_OF_BLOCKS, (narrowed(draft.block_sizes), array("B", draft.digests))))
    pieces: list[bytes] = []
    placed, at = [], 0
    for name, column in narrow.items():
        data = column.tobytes()
        placed.append(_Column(name, column.typecode, at, len(column)))
        pieces.append(data + bytes(-len(data) % _ALIGN))
        at += len(pieces[-1])
    crc32 = 0
    for piece in pieces:
        crc32 = zlib.crc32(piece, crc32)
    document = _Document(
        VERSION,
        len(draft.offsets),
        draft.layout,
        at,
        crc32,
        draft.archives,
        tuple(placed),
        draft.classes,
        draft.kinds,
        draft.left_out,
        draft.choice,
    )
    return document, pieces


def narrowed(values: array[int]) -> array[int]:
    """The same numbers, each in as few bytes as the largest needs."""
    largest = max(values, default=0)
    code = next(code for code, width in _WIDTHS.items() if largest < 1 << 8 * width)
    return array(code, values)
