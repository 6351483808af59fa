"""An object store in memory: the simplest implementation of Source and Sink."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.api import FULL_RANGE, ByteRange, ListedObject, ObjectInfo
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent


class MemoryStream(io.BytesIO):
    def __init__(self, data: bytes, info: ObjectInfo, start: int) -> None:
        super().__init__(data)
        self.info, self.start = info, start

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)


class MemoryBackend:
    """A Source and Sink over `objects`, which maps URLs to bytes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def stat(self, location: Location) -> ObjectInfo:
        data = self._read_object(location)
        return ObjectInfo(size=len(data), etag=f"{hash(data):x}", accepts_ranges=True)

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> MemoryStream:
        return MemoryStream(
            self._read_object(location)[byte_range.start : byte_range.stop], self.stat(location), byte_range.start
        )

    def list(self, location: Location) -> Iterator[ListedObject]:
        prefix = location.url.rstrip("/") + "/"
        for url in sorted(url for url in self.objects if url.startswith(prefix)):
            yield ListedObject(unquote(url[len(prefix) :]), len(self.objects[url]), replace(location, url=url))

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> None:
        self.objects[location.url] = path.read_bytes()
        on_bytes_sent(len(self.objects[location.url]))

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        self.objects[target.url] = self._read_object(source)
        return True

    def delete(self, location: Location) -> None:
        self.objects.pop(location.url, None)

    def _read_object(self, location: Location) -> bytes:
        try:
            return self.objects[location.url]
        except KeyError:
            raise TransferError("object_missing", f"{location.url} does not exist", location.url) from None
