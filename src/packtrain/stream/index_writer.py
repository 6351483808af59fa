"""Write an index file from its columns (docs/formats/index.md)."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain.fileutil import atomic_writer
from packtrain.stream import name_codec
from packtrain.stream.index import (
    ALIGNMENT,
    CHECKSUM_COLUMNS,
    INDEX_VERSION,
    LAYOUT_RANGES,
    MAGIC,
    PART_COLUMNS,
    PREAMBLE,
    SAMPLE_COLUMNS,
    TYPE_WIDTHS,
    Index,
    IndexColumn,
    IndexedArchive,
    IndexHeader,
    encode_header,
)


@dataclass
class IndexDraft:
    """The content of an index to write. Each column is stored as narrow as its largest number allows.

    Attributes:
        archives: The archives of the samples.
        class_names: The class names; a label is a position in this tuple.
        offsets: The offset of each sample in its archive, in bytes.
        sizes: The size of each sample, in bytes.
        labels: The label of each sample.
        archive_ids: The archive of each sample, as a position in `archives`.
        names: The name of each sample.
        layout: LAYOUT_RANGES or LAYOUT_FILES.
        extensions: The file extensions of samples with several parts.
        part_starts: The first part of each sample, and the number of parts; None if samples have no parts.
        part_offsets: The offset of each part from the start of its sample, in bytes.
        part_sizes: The size of each part, in bytes.
        part_extensions: The extension of each part, as a position in `extensions`.
        n_skipped_files: Number of files that are not samples.
        selection: Which samples were requested, if not all.
        block_sizes: The checksum block size of each archive, in bytes; empty without checksums.
        digests: The checksums of all blocks.
    """

    archives: tuple[IndexedArchive, ...]
    class_names: tuple[str, ...]
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    labels: array[int] = field(default_factory=lambda: array("Q"))
    archive_ids: array[int] = field(default_factory=lambda: array("Q"))
    names: Iterable[str] = ()
    layout: str = LAYOUT_RANGES
    extensions: tuple[str, ...] = ()
    part_starts: array[int] | None = None
    part_offsets: array[int] = field(default_factory=lambda: array("Q"))
    part_sizes: array[int] = field(default_factory=lambda: array("Q"))
    part_extensions: array[int] = field(default_factory=lambda: array("Q"))
    n_skipped_files: int = 0
    selection: str = ""
    block_sizes: array[int] = field(default_factory=lambda: array("Q"))
    digests: bytes = b""


def write_index(draft: IndexDraft, path: Path) -> Index:
    """Write an index atomically and open it.

    Args:
        draft: The content.
        path: The file to write.
    """
    header, columns = _build_columns(draft)
    return _write_file(header, columns, path)


def write_relocated_index(index: Index, archives: tuple[IndexedArchive, ...], path: Path) -> Index:
    """Write an index of the same samples in archives with other URLs, and open it.

    Args:
        index: An index of the same samples.
        archives: The archives to name instead.
        path: The file to write.
    """
    return _write_file(replace(index.header, archives=archives), [index.column_bytes], path)


def _write_file(header: IndexHeader, columns: Sequence[bytes | memoryview], path: Path) -> Index:
    text = encode_header(header)
    with atomic_writer(path, durable=True) as file:
        file.write(PREAMBLE.pack(MAGIC, len(text), zlib.crc32(text)) + text)
        file.writelines(columns)
    return Index.open(path, verify=False)


def _build_columns(draft: IndexDraft) -> tuple[IndexHeader, list[bytes]]:
    packed_names, restarts = name_codec.encode_names(draft.names)
    columns = dict(zip(SAMPLE_COLUMNS, (draft.offsets, draft.sizes, draft.labels, draft.archive_ids)))
    columns["name_restarts"] = restarts
    if draft.part_starts is not None:
        columns["part_start"] = draft.part_starts
        columns.update(zip(PART_COLUMNS, (draft.part_offsets, draft.part_sizes, draft.part_extensions)))
    arrays = {**{name: _narrow_array(values) for name, values in columns.items()}, "names": array("B", packed_names)}
    if draft.block_sizes:
        arrays.update(zip(CHECKSUM_COLUMNS, (_narrow_array(draft.block_sizes), array("B", draft.digests))))
    chunks: list[bytes] = []
    index_columns, offset, crc32 = [], 0, 0
    for name, values in arrays.items():
        data = values.tobytes()
        chunk = data + bytes(-len(data) % ALIGNMENT)
        chunks.append(chunk)
        index_columns.append(IndexColumn(name, values.typecode, offset, len(values)))
        offset, crc32 = offset + len(chunk), zlib.crc32(chunk, crc32)
    header = IndexHeader(
        version=INDEX_VERSION,
        n_samples=len(draft.offsets),
        layout=draft.layout,
        columns_bytes=offset,
        columns_crc32=crc32,
        archives=draft.archives,
        columns=tuple(index_columns),
        class_names=draft.class_names,
        extensions=draft.extensions,
        n_skipped_files=draft.n_skipped_files,
        selection=draft.selection,
    )
    return header, chunks


def _narrow_array(values: array[int]) -> array[int]:
    """Return the same numbers in the narrowest type that holds the largest one."""
    largest = max(values, default=0)
    type_code = next(code for code, width in TYPE_WIDTHS.items() if largest < 1 << 8 * width)
    return array(type_code, values)
