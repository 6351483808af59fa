"""An archive on a disk of this machine: read where it lies, by one open file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from packtrain.errors import TransferError
from packtrain.indexing.archive_reader import Remote, Stop
from packtrain.plan import Ref
from packtrain.transfer.api import Reveal
from packtrain.transfer.backends.file import FileStore
from packtrain.transfer.urls import path_of, scheme_of


class Local(Remote):
    def __init__(self, refs: Sequence[Ref], reveal: Reveal, patience_s: float, stop: Stop) -> None:
        super().__init__(refs, reveal, patience_s, stop)
        self.info = FileStore().stat(self.refs[0])
        self._file = open(path_of(self.refs[0].url), "rb", buffering=0)  # noqa: SIM115 - closed when it is forgotten
        self._changed = os.fstat(self._file.fileno()).st_mtime_ns

    def read(self, start: int, stop: int) -> bytes:
        self._stop()
        handle, pieces = self._file.fileno(), []
        if os.fstat(handle).st_mtime_ns != self._changed:
            raise TransferError("not_the_data", f"{self.shown} changed while it was indexed", self.shown)
        while start < stop:
            piece = os.pread(handle, stop - start, start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


def opened(refs: Sequence[Ref], reveal: Reveal, patience_s: float, stop: Stop) -> Remote:
    """As its address wants it."""
    local = len(refs) == 1 and scheme_of(refs[0].url) == "file"
    return (Local if local else Remote)(refs, reveal, patience_s, stop)
