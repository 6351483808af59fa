"""An archive on a disk of this machine: read where it lies, by one open file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from packtrain.errors import TransferError
from packtrain.indexing.archive_reader import ArchiveReader, CancelCheck
from packtrain.plan import Location
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.urls import path_from_file_url, url_scheme


class LocalArchiveReader(ArchiveReader):
    def __init__(
        self,
        locations: Sequence[Location],
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
    ) -> None:
        super().__init__(locations, resolve_secret, retry_timeout_s, check_cancelled)
        self.info = FileBackend().stat(self.locations[0])
        self._file = open(path_from_file_url(self.locations[0].url), "rb", buffering=0)  # noqa: SIM115 - closed when it is forgotten
        self._mtime_ns = os.fstat(self._file.fileno()).st_mtime_ns

    def read(self, start: int, stop: int) -> bytes:
        self._check_cancelled()
        handle, pieces = self._file.fileno(), []
        if os.fstat(handle).st_mtime_ns != self._mtime_ns:
            raise TransferError(
                "unexpected_content", f"{self.redacted_url} changed while it was indexed", self.redacted_url
            )
        while start < stop:
            piece = os.pread(handle, stop - start, start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


def open_archive(
    locations: Sequence[Location], resolve_secret: SecretResolver, retry_timeout_s: float, check_cancelled: CancelCheck
) -> ArchiveReader:
    """As its address wants it."""
    local = len(locations) == 1 and url_scheme(locations[0].url) == "file"
    return (LocalArchiveReader if local else ArchiveReader)(locations, resolve_secret, retry_timeout_s, check_cancelled)
