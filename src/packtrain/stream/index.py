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
from packtrain.transfer.urls import join_url, redact_url

INDEX_SUFFIX = ".packtrain-index"
INDEX_VERSION = 1
LAYOUT_RANGES, LAYOUT_FILES = "spans", "files"

_MAGIC = b"PACKTRAIN-INDEX\n"
_PREAMBLE = struct.Struct("<16sII")  # magic, length of the document, its crc32
_ALIGNMENT = 8
_TYPE_WIDTHS = {"B": 1, "H": 2, "I": 4, "Q": 8}
_SAMPLE_COLUMNS = ("offset", "size", "class", "archive")
_PART_COLUMNS = ("part_offset", "part_size", "part_kind")
_CHECKSUM_COLUMNS = ("block_size", "digests")  # behind all others


@dataclass(frozen=True)
class IndexedArchive:
    """One object that holds samples, as it was when it was indexed; or a folder, whose files are the samples."""

    url: str  # without user, password and query
    size: int
    etag: str = ""
    modified: str = ""  # as the server writes it; where there is no ETag
    mirrors: tuple[str, ...] = ()
    listing_sha256: str = ""  # of a folder: sha256 of names and sizes

    def describe_change(self, info: ObjectInfo) -> str | None:
        """What an answer says that differs, in words. Of a mirror only the size is known."""
        if info.size is not None and info.size != self.size:
            return f"it had {self.size} bytes and now has {info.size}"
        if self.etag and info.etag and self.etag != info.etag:
            return f"its ETag was {self.etag} and now is {info.etag}"
        if not self.etag and self.modified and info.last_modified and self.modified != info.last_modified:
            return f"it was last modified {self.modified} and now {info.last_modified}"
        return None


class SamplePart(NamedTuple):
    """A file of a sample."""

    extension: str  # what follows the first dot of its name: jpg, cls, seg.png
    offset: int  # in the archive
    size: int


class Sample(NamedTuple):
    name: str
    archive_id: int
    offset: int
    size: int
    label: int  # which of `class_names`


@dataclass(frozen=True)
class _IndexColumn:
    name: str
    type: str
    offset: int  # behind the document
    count: int


@dataclass(frozen=True)
class _IndexHeader:
    version: int
    n_samples: int
    layout: str
    columns_bytes: int  # of all columns
    columns_crc32: int  # of all columns
    archives: tuple[IndexedArchive, ...]
    columns: tuple[_IndexColumn, ...]
    class_names: tuple[str, ...]
    extensions: tuple[str, ...] = ()
    n_skipped_files: int = 0
    selection: str = ""


class Index:
    """`offsets`, `sizes`, `classes` and `archive` have a number for each sample; `block_sizes` has one for each archive
    where checksums of their blocks (`digests`) are known."""

    def __init__(self, path: Path, data: mmap.mmap, header: _IndexHeader, columns_offset: int) -> None:
        self.path, self._header = path, header
        self._column_bytes = memoryview(data)[columns_offset:]
        self.archives, self.class_names, self.extensions = header.archives, header.class_names, header.extensions
        self.layout, self.n_skipped_files, self.selection = header.layout, header.n_skipped_files, header.selection
        self._columns = {c.name: _column_view(data, columns_offset, c) for c in header.columns}
        self.offsets, self.sizes, self.labels, self.archive_ids = (self._columns[name] for name in _SAMPLE_COLUMNS)
        self.block_sizes, self.digests = (self._columns.get(name, memoryview(b"")) for name in _CHECKSUM_COLUMNS)

    @classmethod
    def open(cls, path: Path | str, verify: bool = True) -> Index:
        """Raises FormatError, and OSError if there is no such file. `check`: whether all bytes are as written."""
        path = Path(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _PREAMBLE.size:
                raise FormatError(f"{path} is no index: it has {size} bytes only")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        document, start = _read_header(data, path)
        if len(data) != start + document.columns_bytes:
            raise _damaged_error(path, f"it has {len(data)} bytes and should have {start + document.columns_bytes}")
        if verify and zlib.crc32(memoryview(data)[start:]) != document.columns_crc32:
            raise _damaged_error(path, "its columns are not as they were written")
        return cls(path, data, document, start)

    def __reduce__(self) -> tuple[object, ...]:
        return Index.open, (self.path, False)

    def __len__(self) -> int:
        return self._header.n_samples

    @property
    def samples_fingerprint(self) -> str:
        """Of the samples and their order: the same ones have the same, wherever they are to be had."""
        about = self._header
        text = json.dumps([about.layout, about.class_names, about.extensions, [one.size for one in about.archives]])
        others = [column.offset for column in about.columns if column.name in _CHECKSUM_COLUMNS]
        crc32 = zlib.crc32(self._column_bytes[: min(others)]) if others else about.columns_crc32
        return f"{crc32:08x}{zlib.crc32(text.encode()):08x}"

    @property
    def fingerprint(self) -> str:
        """Tells this index from any other: an archive that was changed, or lies elsewhere, makes another."""
        return f"{self._header.columns_crc32:08x}{zlib.crc32(_encode_header(self._header)):08x}"

    @property
    def has_parts(self) -> bool:
        """Whether samples have several parts."""
        return "part_first" in self._columns

    def sample(self, number: int) -> Sample:
        at = self._normalize_number(number)
        return Sample(self.name(at), self.archive_ids[at], self.offsets[at], self.sizes[at], self.labels[at])

    def name(self, number: int) -> str:
        block, behind = divmod(self._normalize_number(number), packing.RESTART_INTERVAL)
        found = packing.decode_names(self._columns["names"], self._columns["name_blocks"][block])
        return next(name for place, name in enumerate(found) if place == behind)

    def names(self) -> Iterator[str]:
        """All of them, in order: quicker than one by one."""
        return packing.decode_names(self._columns["names"], 0)

    def parts(self, number: int) -> list[SamplePart]:
        """Where the files of a sample lie. A sample that is a single file has one."""
        at = self._normalize_number(number)
        if not self.has_parts:
            return [SamplePart(extension_of(self.name(at)), self.offsets[at], self.sizes[at])]
        first, stop = self._columns["part_first"][at], self._columns["part_first"][at + 1]
        offset, size, kind = (self._columns[name] for name in _PART_COLUMNS)
        base = self.offsets[at]
        return [SamplePart(self.extensions[kind[p]], base + offset[p], size[p]) for p in range(first, stop)]

    def sample_url(self, number: int) -> str:
        """Of the object that holds the sample."""
        archive = self.archives[self.archive_ids[number]]
        return join_url(archive.url, self.name(number)) if self.layout == LAYOUT_FILES else archive.url

    def _normalize_number(self, number: int) -> int:
        at = number + len(self) if number < 0 else number
        if not 0 <= at < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return at


def strip_credentials(url: str) -> str:
    """Without user, password and query, which may be secret; an index is for anybody."""
    text = redact_url(url)
    return text[: -len("?…")] if text.endswith("?…") else text


def extension_of(name: str) -> str:
    """What follows the first dot of the last name of a path."""
    return name.rpartition("/")[2].partition(".")[2]


def _column_view(data: mmap.mmap, columns_offset: int, column: _IndexColumn) -> memoryview:
    begin = columns_offset + column.offset
    view = memoryview(data)[begin : begin + column.count * _TYPE_WIDTHS[column.type]]
    return view.cast(cast("Literal['B', 'H', 'I', 'Q']", column.type))


def _read_header(data: mmap.mmap, path: Path) -> tuple[_IndexHeader, int]:
    magic, length, crc32 = _PREAMBLE.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"{path} is no index of packtrain; `packtrain index` makes one")
    if sys.byteorder != "little":
        raise FormatError(f"{path} cannot be read on this machine, whose numbers have their highest byte first")
    start = _PREAMBLE.size + length
    text = data[_PREAMBLE.size : start]
    if len(text) != length or zlib.crc32(text) != crc32:
        raise _damaged_error(path, "its first part is not as it was written")
    return _parse_header(text, path), start


def _parse_header(text: bytes, path: Path) -> _IndexHeader:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged_error(path, str(error)) from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != INDEX_VERSION:
        raise FormatError(
            f"{path} is an index of version {version}; this packtrain reads {INDEX_VERSION}: make it anew"
        )
    document = decode(_IndexHeader, raw, str(path))
    _validate_header(document, path)
    return document


def _validate_header(header: _IndexHeader, path: Path) -> None:
    """What the document promises must be inside of the file, and of the right number."""
    counts = {column.name: column.count for column in header.columns}
    for column in header.columns:
        end = column.offset + column.count * _TYPE_WIDTHS.get(column.type, -1)
        if (
            min(column.offset, column.count) < 0
            or not column.offset <= end <= header.columns_bytes
            or column.type not in _TYPE_WIDTHS
        ):
            raise _damaged_error(path, f"its column {column.name!r} is not inside of it")
    blocks = -(-header.n_samples // packing.RESTART_INTERVAL)
    wanted = {**dict.fromkeys(_SAMPLE_COLUMNS, header.n_samples), "name_blocks": blocks}
    if "part_first" in counts:
        wanted.update(
            {"part_first": header.n_samples + 1, **dict.fromkeys(_PART_COLUMNS, counts.get("part_offset", -1))}
        )
    if "block_size" in counts:
        wanted["block_size"] = len(header.archives)
    wrong = next((name for name, count in wanted.items() if counts.get(name) != count), None)
    if wrong is not None or "names" not in counts or header.layout not in (LAYOUT_RANGES, LAYOUT_FILES):
        raise _damaged_error(
            path, f"its column {wrong!r} is not as long as it should be" if wrong else "it is incomplete"
        )


def _damaged_error(path: Path, reason: str) -> FormatError:
    return FormatError(f"the index {path} is damaged: {reason}; make it anew with `packtrain index`")


@dataclass
class IndexDraft:
    """What is written. Numbers may be any; a column is as wide as its largest needs."""

    archives: tuple[IndexedArchive, ...]
    class_names: tuple[str, ...]
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    labels: array[int] = field(default_factory=lambda: array("Q"))
    archive_ids: array[int] = field(default_factory=lambda: array("Q"))
    names: Iterable[str] = ()
    layout: str = LAYOUT_RANGES
    extensions: tuple[str, ...] = ()
    part_starts: array[int] | None = None  # one more than there are samples
    part_offsets: array[int] = field(default_factory=lambda: array("Q"))  # from the sample's own
    part_sizes: array[int] = field(default_factory=lambda: array("Q"))
    part_extensions: array[int] = field(default_factory=lambda: array("Q"))
    n_skipped_files: int = 0
    selection: str = ""  # of samples, where not all were wanted
    block_sizes: array[int] = field(default_factory=lambda: array("Q"))  # of each archive, or none: see `blocks`
    digests: bytes = b""


def write_index(draft: IndexDraft, path: Path) -> Index:
    """Complete or invisible."""
    document, columns = _build_columns(draft)
    return _write_file(document, columns, path)


def write_relocated_index(index: Index, archives: tuple[IndexedArchive, ...], path: Path) -> Index:
    """The same samples, of archives that lie elsewhere."""
    return _write_file(replace(index._header, archives=archives), [index._column_bytes], path)


def _write_file(header: _IndexHeader, columns: Sequence[bytes | memoryview], path: Path) -> Index:
    text = _encode_header(header)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(temporary, "wb") as file:
            file.write(_PREAMBLE.pack(_MAGIC, len(text), zlib.crc32(text)) + text)
            file.writelines(columns)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Index.open(path, verify=False)


def _encode_header(header: _IndexHeader) -> bytes:
    """The document as it stands in the file, so long that columns begin at multiples of 8."""
    text = json.dumps(encode(header), separators=(",", ":")).encode()
    return text + b" " * (-(_PREAMBLE.size + len(text)) % _ALIGNMENT)


def _build_columns(draft: IndexDraft) -> tuple[_IndexHeader, list[bytes]]:
    packed, starts = packing.encode_names(draft.names)
    columns = dict(zip(_SAMPLE_COLUMNS, (draft.offsets, draft.sizes, draft.labels, draft.archive_ids)))
    columns["name_blocks"] = starts
    if draft.part_starts is not None:
        columns["part_first"] = draft.part_starts
        columns.update(zip(_PART_COLUMNS, (draft.part_offsets, draft.part_sizes, draft.part_extensions)))
    narrow = {**{name: narrow_array(values) for name, values in columns.items()}, "names": array("B", packed)}
    if draft.block_sizes:
        narrow.update(zip(_CHECKSUM_COLUMNS, (narrow_array(draft.block_sizes), array("B", draft.digests))))
    pieces: list[bytes] = []
    placed, at = [], 0
    for name, column in narrow.items():
        data = column.tobytes()
        placed.append(_IndexColumn(name, column.typecode, at, len(column)))
        pieces.append(data + bytes(-len(data) % _ALIGNMENT))
        at += len(pieces[-1])
    crc32 = 0
    for piece in pieces:
        crc32 = zlib.crc32(piece, crc32)
    document = _IndexHeader(
        INDEX_VERSION,
        len(draft.offsets),
        draft.layout,
        at,
        crc32,
        draft.archives,
        tuple(placed),
        draft.class_names,
        draft.extensions,
        draft.n_skipped_files,
        draft.selection,
    )
    return document, pieces


def narrow_array(values: array[int]) -> array[int]:
    """The same numbers, each in as few bytes as the largest needs."""
    largest = max(values, default=0)
    code = next(code for code, width in _TYPE_WIDTHS.items() if largest < 1 << 8 * width)
    return array(code, values)
