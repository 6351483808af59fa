"""Objects in a dict, as source and sink: for tests, and the plainest reading of the protocols."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Span
from packtrain.transfer.http.request_body import Sent, unwatched


class MemoryStream(io.BytesIO):
    def __init__(self, data: bytes, info: ObjectInfo, start: int) -> None:
        super().__init__(data)
        self.info, self.start = info, start

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)


class MemoryStore:
    """Source and Sink over `objects`: address → bytes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def stat(self, ref: Ref) -> ObjectInfo:
        data = self._data(ref)
        return ObjectInfo(size=len(data), etag=f"{hash(data):x}", ranges=True)

    def open(self, ref: Ref, span: Span = WHOLE) -> MemoryStream:
        return MemoryStream(self._data(ref)[span.start : span.stop], self.stat(ref), span.start)

    def list(self, ref: Ref) -> Iterator[Entry]:
        below = ref.url.rstrip("/") + "/"
        for url in sorted(url for url in self.objects if url.startswith(below)):
            yield Entry(unquote(url[len(below) :]), len(self.objects[url]), replace(ref, url=url))

    def put(self, ref: Ref, path: Path, sent: Sent = unwatched) -> None:
        self.objects[ref.url] = path.read_bytes()
        sent(len(self.objects[ref.url]))

    def delete(self, ref: Ref) -> None:
        self.objects.pop(ref.url, None)

    def _data(self, ref: Ref) -> bytes:
        try:
            return self.objects[ref.url]
        except KeyError:
            raise TransferError("object_missing", f"{ref.url} does not exist", ref.url) from None
