"""Read the index of a dataset: where each sample is stored, as memory-mapped columns (docs/formats/index.md).

`Index.open` opens a file. Its columns are flat arrays of numbers, so a sample that is not used costs no object.
`index_writer` writes the file; `packtrain.indexing` finds the samples of an archive.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.stream import name_codec
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.urls import join_url, redact_url

INDEX_SUFFIX = ".packtrain-index"
INDEX_VERSION = 2
LAYOUT_RANGES, LAYOUT_FILES = "ranges", "files"  # samples are byte ranges of archives, or files of a folder

MAGIC = b"PACKTRAIN-INDEX\n"
PREAMBLE = struct.Struct("<16sII")  # magic, length of the header, its CRC-32
ALIGNMENT = 8  # bytes; each column starts at a multiple of it
TYPE_WIDTHS = {"B": 1, "H": 2, "I": 4, "Q": 8}
SAMPLE_COLUMNS = ("offset", "size", "label", "archive")
PART_COLUMNS = ("part_offset", "part_size", "part_extension")
CHECKSUM_COLUMNS = ("block_size", "digests")  # after all other columns


@dataclass(frozen=True)
class IndexedArchive:
    """An archive as it was when it was indexed; or a folder whose files are the samples.

    Attributes:
        url: Its URL, without user, password and query.
        size: Its size in bytes.
        etag: Its ETag; empty if the server sent none.
        modified: Its modification time as the server sent it, if there is no ETag.
        mirrors: Other URLs of the same archive.
        listing_sha256: For a folder, the SHA-256 of all names and sizes.
    """

    url: str
    size: int
    etag: str = ""
    modified: str = ""
    mirrors: tuple[str, ...] = ()
    listing_sha256: str = ""

    def describe_change(self, info: ObjectInfo) -> str | None:
        """Return how a response differs from the indexed archive, or None if it does not.

        Args:
            info: The metadata of the response.
        """
        if info.size is not None and info.size != self.size:
            return f"it had {self.size} bytes and now has {info.size}"
        if self.etag and info.etag and self.etag != info.etag:
            return f"its ETag was {self.etag} and now is {info.etag}"
        if not self.etag and self.modified and info.last_modified and self.modified != info.last_modified:
            return f"it was last modified {self.modified} and now {info.last_modified}"
        return None


class SamplePart(NamedTuple):
    """A file of a sample.

    Attributes:
        extension: The part of its name after the first dot: jpg, cls, seg.png.
        offset: Its offset in the archive, in bytes.
        size: Its size in bytes.
    """

    extension: str
    offset: int
    size: int


class Sample(NamedTuple):
    """A sample, as the index lists it.

    Attributes:
        name: Its name in the archive.
        archive_id: The position of its archive in `Index.archives`.
        offset: Its offset in the archive, in bytes.
        size: Its size in bytes.
        label: The position of its class in `Index.class_names`.
    """

    name: str
    archive_id: int
    offset: int
    size: int
    label: int


@dataclass(frozen=True)
class IndexColumn:
    """A column of the file.

    Attributes:
        name: Its name.
        type: The type code of its numbers, as in the module `array`.
        offset: Its offset after the header, in bytes.
        count: The number of its entries.
    """

    name: str
    type: str
    offset: int
    count: int


@dataclass(frozen=True)
class IndexHeader:
    """The JSON header of the file.

    Attributes:
        version: The version of the format.
        n_samples: Number of samples.
        layout: LAYOUT_RANGES or LAYOUT_FILES.
        columns_bytes: Size of all columns, in bytes.
        columns_crc32: CRC-32 of all columns.
        archives: The archives of the samples.
        columns: The columns, in the order of the file.
        class_names: The class names; a label is a position in this tuple.
        extensions: The file extensions of samples with several parts.
        n_skipped_files: Number of files that are not samples.
        selection: Which samples were requested, if not all.
    """

    version: int
    n_samples: int
    layout: str
    columns_bytes: int
    columns_crc32: int
    archives: tuple[IndexedArchive, ...]
    columns: tuple[IndexColumn, ...]
    class_names: tuple[str, ...]
    extensions: tuple[str, ...] = ()
    n_skipped_files: int = 0
    selection: str = ""


class Index:
    """An open index. `Index.open` creates it.

    Attributes:
        path: The file.
        header: Its header.
        column_bytes: All columns, as they are in the file.
        offsets: The offset of each sample in its archive, in bytes.
        sizes: The size of each sample, in bytes.
        labels: The label of each sample.
        archive_ids: The archive of each sample, as a position in `archives`.
        block_sizes: The block size of each archive, in bytes, if checksums are known; else empty.
        digests: The checksums of all blocks.
    """

    def __init__(self, path: Path, data: mmap.mmap, header: IndexHeader, columns_offset: int) -> None:
        self.path, self.header = path, header
        self.column_bytes = memoryview(data)[columns_offset:]
        self.archives, self.class_names, self.extensions = header.archives, header.class_names, header.extensions
        self.layout, self.n_skipped_files, self.selection = header.layout, header.n_skipped_files, header.selection
        self._columns = {column.name: _column_view(data, columns_offset, column) for column in header.columns}
        self.offsets, self.sizes, self.labels, self.archive_ids = (self._columns[name] for name in SAMPLE_COLUMNS)
        self.block_sizes, self.digests = (self._columns.get(name, memoryview(b"")) for name in CHECKSUM_COLUMNS)

    @classmethod
    def open(cls, path: Path | str, verify: bool = True) -> Index:
        """Open an index file.

        Args:
            path: The file.
            verify: Whether to verify the checksum of all columns.

        Raises:
            FormatError: The file is damaged, or not an index.
            OSError: The file cannot be read.
        """
        path = Path(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < PREAMBLE.size:
                raise FormatError(f"{path} is not an index: it has only {size} bytes")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header, columns_offset = _read_header(data, path)
        expected_size = columns_offset + header.columns_bytes
        if len(data) != expected_size:
            raise _damaged_error(path, f"it has {len(data)} bytes and should have {expected_size}")
        if verify and zlib.crc32(memoryview(data)[columns_offset:]) != header.columns_crc32:
            raise _damaged_error(path, "the checksum of its columns is wrong")
        return cls(path, data, header, columns_offset)

    def __reduce__(self) -> tuple[object, ...]:
        return Index.open, (self.path, False)

    def __len__(self) -> int:
        return self.header.n_samples

    @property
    def samples_fingerprint(self) -> str:
        """Identifies the samples and their order, independent of the URLs of the archives."""
        header = self.header
        sizes = [archive.size for archive in header.archives]
        text = json.dumps([header.layout, header.class_names, header.extensions, sizes])
        checksum_offsets = [column.offset for column in header.columns if column.name in CHECKSUM_COLUMNS]
        crc32 = zlib.crc32(self.column_bytes[: min(checksum_offsets)]) if checksum_offsets else header.columns_crc32
        return f"{crc32:08x}{zlib.crc32(text.encode()):08x}"

    @property
    def fingerprint(self) -> str:
        """Identifies this index: it changes when an archive changes or gets another URL."""
        return f"{self.header.columns_crc32:08x}{zlib.crc32(encode_header(self.header)):08x}"

    @property
    def has_parts(self) -> bool:
        """Whether samples consist of several files."""
        return "part_start" in self._columns

    def sample(self, number: int) -> Sample:
        """Return a sample.

        Args:
            number: Its number; negative numbers count from the end.
        """
        number = self._normalize_number(number)
        return Sample(
            self.name(number),
            self.archive_ids[number],
            self.offsets[number],
            self.sizes[number],
            self.labels[number],
        )

    def name(self, number: int) -> str:
        """Return the name of a sample.

        Args:
            number: The number of the sample; negative numbers count from the end.
        """
        restart, position = divmod(self._normalize_number(number), name_codec.RESTART_INTERVAL)
        names = name_codec.decode_names(self._columns["names"], self._columns["name_restarts"][restart])
        return next(name for at, name in enumerate(names) if at == position)

    def names(self) -> Iterator[str]:
        """Yield the names of all samples. Faster than one call of `name` per sample."""
        return name_codec.decode_names(self._columns["names"], 0)

    def parts(self, number: int) -> list[SamplePart]:
        """Return the files of a sample; one file if samples have no parts.

        Args:
            number: The number of the sample; negative numbers count from the end.
        """
        number = self._normalize_number(number)
        if not self.has_parts:
            return [SamplePart(extension_of(self.name(number)), self.offsets[number], self.sizes[number])]
        first, stop = self._columns["part_start"][number], self._columns["part_start"][number + 1]
        offsets, sizes, extensions = (self._columns[name] for name in PART_COLUMNS)
        base = self.offsets[number]
        return [
            SamplePart(self.extensions[extensions[part]], base + offsets[part], sizes[part])
            for part in range(first, stop)
        ]

    def sample_url(self, number: int) -> str:
        """Return the URL of the archive or file that holds a sample.

        Args:
            number: The number of the sample.
        """
        archive = self.archives[self.archive_ids[number]]
        return join_url(archive.url, self.name(number)) if self.layout == LAYOUT_FILES else archive.url

    def _normalize_number(self, number: int) -> int:
        normalized = number + len(self) if number < 0 else number
        if not 0 <= normalized < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return normalized


def strip_credentials(url: str) -> str:
    """Return the URL without user, password and query, which may be secret: an index may be published.

    Args:
        url: A URL.
    """
    text = redact_url(url)
    return text[: -len("?…")] if text.endswith("?…") else text


def extension_of(name: str) -> str:
    """Return the part of a file name after its first dot.

    Args:
        name: A path.
    """
    return name.rpartition("/")[2].partition(".")[2]


def encode_header(header: IndexHeader) -> bytes:
    """Return the header as it is written, padded so that the columns are aligned.

    Args:
        header: The header.
    """
    text = json.dumps(encode(header), separators=(",", ":")).encode()
    return text + b" " * (-(PREAMBLE.size + len(text)) % ALIGNMENT)


def _column_view(data: mmap.mmap, columns_offset: int, column: IndexColumn) -> memoryview:
    start = columns_offset + column.offset
    view = memoryview(data)[start : start + column.count * TYPE_WIDTHS[column.type]]
    return view.cast(cast("Literal['B', 'H', 'I', 'Q']", column.type))


def _read_header(data: mmap.mmap, path: Path) -> tuple[IndexHeader, int]:
    magic, length, crc32 = PREAMBLE.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"{path} is not an index of packtrain; create one with `packtrain index`")
    if sys.byteorder != "little":
        raise FormatError(f"{path} cannot be read on this machine: an index needs a little-endian processor")
    columns_offset = PREAMBLE.size + length
    text = data[PREAMBLE.size : columns_offset]
    if len(text) != length or zlib.crc32(text) != crc32:
        raise _damaged_error(path, "the checksum of its header is wrong")
    return _parse_header(text, path), columns_offset


def _parse_header(text: bytes, path: Path) -> IndexHeader:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged_error(path, str(error)) from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != INDEX_VERSION:
        raise FormatError(
            f"{path} is an index of version {version}, and this packtrain reads {INDEX_VERSION}: "
            "build it again with `packtrain index`"
        )
    header = decode(IndexHeader, raw, str(path))
    _validate_header(header, path)
    return header


def _validate_header(header: IndexHeader, path: Path) -> None:
    """Raise FormatError if a column is not inside the file, or has the wrong number of entries."""
    counts = {column.name: column.count for column in header.columns}
    for column in header.columns:
        end = column.offset + column.count * TYPE_WIDTHS.get(column.type, -1)
        if (
            min(column.offset, column.count) < 0
            or not column.offset <= end <= header.columns_bytes
            or column.type not in TYPE_WIDTHS
        ):
            raise _damaged_error(path, f"its column {column.name!r} is not inside the file")
    n_restarts = -(-header.n_samples // name_codec.RESTART_INTERVAL)
    expected = {**dict.fromkeys(SAMPLE_COLUMNS, header.n_samples), "name_restarts": n_restarts}
    if "part_start" in counts:
        expected["part_start"] = header.n_samples + 1
        expected.update(dict.fromkeys(PART_COLUMNS, counts.get("part_offset", -1)))
    if "block_size" in counts:
        expected["block_size"] = len(header.archives)
    wrong = next((name for name, count in expected.items() if counts.get(name) != count), None)
    if wrong is not None or "names" not in counts or header.layout not in (LAYOUT_RANGES, LAYOUT_FILES):
        raise _damaged_error(path, f"its column {wrong!r} has the wrong length" if wrong else "it is incomplete")


def _damaged_error(path: Path, reason: str) -> FormatError:
    return FormatError(f"the index {path} is damaged: {reason}; build it again with `packtrain index`")
