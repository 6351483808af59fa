"""Extract tar archives, which are read once from start to end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from packtrain.errors import FailedError
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, ByteStream
from packtrain.transfer.archive.extract_dir import MAX_SMALL_FILE_BYTES
from packtrain.transfer.archive.safe_extractor import MemberHandler, SafeExtractor, map_archive_errors
from packtrain.transfer.archive.tar_header import TarHeader, TarHeaderError
from packtrain.transfer.tasks.cancellation import CancelCheck

_REJECTION_REASONS = {
    tar_header.DEVICE: "a device or pipe",
    tar_header.SPARSE: "a sparse file, which packtrain cannot unpack: create the archive without `--sparse`",
}


def extract_tar(
    stream: ByteStream, extractor: SafeExtractor, check_cancelled: CancelCheck, handle_file: MemberHandler = None
) -> None:
    """Extract a tar archive.

    Args:
        stream: The decompressed archive.
        extractor: Receives the members.
        check_cancelled: Called for each member and chunk; raises to cancel.
        handle_file: Handles members that are files; None: they are written.

    Raises:
        FailedError: archive_unsafe, archive_broken, archive_too_large, truncated or disk_full.
    """
    with map_archive_errors(extractor.archive_name):
        _TarExtractor(stream, extractor, check_cancelled, handle_file).run()


class _TarExtractor:
    def __init__(
        self, stream: ByteStream, extractor: SafeExtractor, check_cancelled: CancelCheck, handle_file: MemberHandler
    ) -> None:
        self._stream, self._extractor = stream, extractor
        self._check_cancelled, self._handle_file = check_cancelled, handle_file
        self._global_records: dict[str, str] = {}  # pax records for all following members

    def run(self) -> None:
        for header in iter(self._next_member, None):
            self._check_cancelled()
            self._extract_member(header)
        while len(self._stream.read_chunk()):  # a compressed stream has its checksum at the very end
            self._check_cancelled()

    def _next_member(self) -> TarHeader | None:
        """Return the next member, with its extended headers applied; None at the end of the archive."""
        header = self._read_header()
        if header is None or (header.kind in _MEMBER_KINDS and not self._global_records):
            return header
        records = dict(self._global_records)
        while header.kind in _EXTENDED_HEADER_KINDS:
            self._apply_extended_header(header, records)
            header = self._read_header()
            if header is None:
                raise EOFError("the member after an extended header is missing")
        with self._map_header_errors():
            return tar_header.apply_pax_records(header, records)

    def _read_header(self) -> TarHeader | None:
        block = self._stream.read(tar_header.HEADER_BYTES)
        if len(block) < tar_header.HEADER_BYTES:
            raise EOFError("the block of zeros at the end is missing")
        if block == tar_header.END_BLOCK:
            return None
        with self._map_header_errors():
            return tar_header.parse_header(block)

    @contextlib.contextmanager
    def _map_header_errors(self) -> Iterator[None]:
        try:
            yield
        except TarHeaderError as error:
            position = self._stream.position - tar_header.HEADER_BYTES
            detail = f"{self._extractor.archive_name} has {error} at byte {position}"
            raise FailedError("archive_broken", detail) from error

    def _apply_extended_header(self, header: TarHeader, records: dict[str, str]) -> None:
        data = self._read_extended_header(header)
        with self._map_header_errors():
            if header.kind == tar_header.LONG_NAME:
                records["path"] = tar_header.parse_long_name(data)
            elif header.kind == tar_header.LONG_LINK:
                records["linkpath"] = tar_header.parse_long_name(data)
            elif header.kind == tar_header.PAX_HEADER:
                records.update(tar_header.parse_pax_records(data))
            elif header.kind == tar_header.PAX_GLOBAL_HEADER:
                self._global_records.update(tar_header.parse_pax_records(data))
                records.update(self._global_records)

    def _read_extended_header(self, header: TarHeader) -> bytes:
        if header.size > tar_header.MAX_EXTENDED_HEADER_BYTES:
            raise FailedError("archive_broken", f"{self._extractor.archive_name} has a header of {header.size} bytes")
        data = self._stream.read(header.size)
        self._stream.skip(-header.size % tar_header.HEADER_BYTES)
        if len(data) < header.size:
            raise EOFError("a header is truncated")
        return data

    def _extract_member(self, header: TarHeader) -> None:
        kind, name = header.kind, header.name
        if kind == tar_header.FILE:
            self._extract_file(header)
        elif kind == tar_header.FOLDER:
            self._extractor.make_folder(name)
        elif kind == tar_header.SYMLINK:
            self._extractor.make_symlink(name, header.link_target)
        elif kind == tar_header.HARDLINK:
            self._extractor.make_hardlink(name, header.link_target)
        else:
            self._extractor.reject(name, _REJECTION_REASONS[kind])

    def _extract_file(self, header: TarHeader) -> None:
        size, stream = header.size, self._stream
        if size > MAX_SMALL_FILE_BYTES or self._handle_file:
            self._extract_large_file(header)
        else:
            views = stream.read_views(size)
            if stream.has_ended:
                raise EOFError("a member is truncated")
            self._extractor.write_small_file(header.name, header.mode, views, size)
        stream.skip(-size % tar_header.HEADER_BYTES)

    def _extract_large_file(self, header: TarHeader) -> None:
        end = self._stream.position + header.size
        data = ByteStream(_with_cancel_check(self._check_cancelled, self._stream.substream(header.size)))
        if self._handle_file:
            self._handle_file(self._extractor, header.name, header.mode, data)
        else:
            self._extractor.write_file(header.name, header.mode, data)
        self._stream.skip(end - self._stream.position)
        if self._stream.position < end:
            raise EOFError("a member is truncated")


_MEMBER_KINDS = frozenset(
    {tar_header.FILE, tar_header.FOLDER, tar_header.SYMLINK, tar_header.HARDLINK, tar_header.DEVICE, tar_header.SPARSE}
)
_EXTENDED_HEADER_KINDS = frozenset(
    {
        tar_header.LONG_NAME,
        tar_header.LONG_LINK,
        tar_header.PAX_HEADER,
        tar_header.PAX_GLOBAL_HEADER,
        tar_header.VOLUME_LABEL,
    }
)


def _with_cancel_check(check_cancelled: CancelCheck, stream: ByteStream) -> Callable[[], memoryview]:
    """Return a reader that calls `check_cancelled` for each chunk, so that large members can be cancelled."""

    def read_next() -> memoryview:
        check_cancelled()
        return stream.read_chunk(CHUNK_BYTES)

    return read_next
