"""http:// and https:// as source (GET, ranges) and sink (PUT of one file)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Ref, Secret
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.http.client import Answer, Request, send
from packtrain.transfer.http.connect import basic
from packtrain.transfer.http.request_body import Sent, unwatched
from packtrain.transfer.http.response import (
    PARTIAL,
    RANGE_NOT_SATISFIABLE,
    encoding_of,
    failure_of,
    info_of,
    range_of,
    size_of,
)
from packtrain.transfer.urls import shown

_HEAD_REFUSED = frozenset({403, 405, 501})
_CREDENTIAL = re.compile(r"auth|cookie|token|secret|key|passw|signature|credential", re.IGNORECASE)
_UNSENDABLE = re.compile(r"[^\x20-\x7e\x80-\xff\t]")


class HttpStream:
    """An answer's body as it is."""

    def __init__(self, answer: Answer, info: ObjectInfo, start: int) -> None:
        self.info, self.start = info, start
        self._answer = answer

    def read(self, size: int, /) -> bytes:
        return self._answer.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        return self._answer.readinto(buffer)

    def close(self) -> None:
        self._answer.close()


class EmptyStream(HttpStream):
    """The end of an object: whatever body came with the answer is not the object's."""

    def read(self, size: int, /) -> bytes:
        return b""

    def readinto(self, buffer: memoryview, /) -> int:
        return 0


class InflatingStream(HttpStream):
    """A body that the server compressed with gzip although it was asked not to."""

    def __init__(self, answer: Answer, info: ObjectInfo) -> None:
        import gzip

        super().__init__(answer, info, 0)
        self._plain = gzip.GzipFile(fileobj=cast(BinaryIO, answer))

    def read(self, size: int, /) -> bytes:
        import zlib

        url = shown(self._answer.url)
        try:
            return self._plain.read1(size)
        except EOFError as error:
            raise TransferError("truncated", f"{url}: the compressed body ended early", url) from error
        except (OSError, zlib.error) as error:
            raise TransferError("not_the_data", f"{url}: the compressed body is damaged ({error})", url) from error

    def readinto(self, buffer: memoryview, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class HttpStore:
    """Source and Sink over HTTP."""

    def __init__(self, reveal: Reveal) -> None:
        self._reveal = reveal

    def stat(self, ref: Ref) -> ObjectInfo:
        request = self._request(ref, "HEAD")
        answer = send(request)
        answer.close()
        if answer.status in _HEAD_REFUSED:
            return self._stat_by_get(ref)
        if answer.status != 200:
            raise failure_of(answer, bool(request.secrets))
        return info_of(answer)

    def _stat_by_get(self, ref: Ref) -> ObjectInfo:
        stream = self.open(ref, Span(0, 1))
        stream.close()
        return stream.info

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        request = self._request(ref, "GET", range_header(span))
        answer = send(request)
        try:
            return stream_of(answer, span, bool(request.secrets))
        except BaseException:
            answer.close()
            raise

    def list(self, ref: Ref) -> Iterable[Entry]:
        words = f"{shown(ref.url)}: an http server does not list what it has; name the files"
        raise TransferError("unsupported", words, shown(ref.url))

    def put(self, ref: Ref, path: Path, sent: Sent = unwatched) -> None:
        request = replace(self._request(ref, "PUT"), body=path, sent=sent)
        self._act(request, accepted=(200, 201, 202, 204))

    def delete(self, ref: Ref) -> None:
        self._act(self._request(ref, "DELETE"), accepted=(200, 202, 204, 404, 410))

    def _act(self, request: Request, accepted: tuple[int, ...]) -> None:
        answer = send(request)
        try:
            if answer.status not in accepted:
                raise failure_of(answer, bool(request.secrets))
        finally:
            answer.close()

    def _request(self, ref: Ref, method: str, extra: dict[str, str] | None = None) -> Request:
        public, secrets = credentials_apart(ref, self._reveal)
        return Request(ref.url, method, {**public, **(extra or {})}, secrets)


def credentials_apart(ref: Ref, reveal: Reveal) -> tuple[dict[str, str], dict[str, str]]:
    """The headers of a ref: those for anyone, and those for its own host only."""
    public: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for header in ref.headers:
        secret = isinstance(header.value, Secret) or _CREDENTIAL.search(header.name)
        (secrets if secret else public)[header.name] = _sendable(header.name, reveal(header.value))
    if ref.token is not None:
        secrets["Authorization"] = "Bearer " + _sendable("Authorization", reveal(ref.token))
    elif urlsplit(ref.url).username and "Authorization" not in secrets:
        secrets["Authorization"] = basic(urlsplit(ref.url))
    return public, secrets


def _sendable(name: str, value: str) -> str:
    """Checked here, so that no error quotes the value."""
    if _UNSENDABLE.search(value.strip()):
        raise FailedError("token_refused", f"the value of the header {name} has characters that cannot be sent")
    return value.strip()


def range_header(span: Span) -> dict[str, str]:
    if span == WHOLE:
        return {}
    return {"Range": f"bytes={span.start}-{'' if span.stop is None else span.stop - 1}"}


def stream_of(answer: Answer, span: Span, secrets: bool) -> Stream:
    if answer.status == RANGE_NOT_SATISFIABLE:
        return _nothing_left(answer, span, secrets)
    if answer.status not in (200, PARTIAL):
        raise failure_of(answer, secrets)
    encoding = encoding_of(answer)
    if encoding is not None:
        return _decoded(answer, encoding)
    start = range_of(answer)[0] if answer.status == PARTIAL else 0
    if start not in (0, span.start):
        words = f"{shown(answer.url)} was asked for bytes from {span.start}, but sent others"
        raise TransferError("service_unavailable", words, shown(answer.url))
    return HttpStream(answer, info_of(answer), start or 0)


def _nothing_left(answer: Answer, span: Span, secrets: bool) -> Stream:
    """416 for a span that begins at the end or beyond it is no error: there are no more bytes."""
    size = size_of(answer)
    if size is None or span.start < size:
        raise failure_of(answer, secrets)
    return EmptyStream(answer, info_of(answer), span.start)


def _decoded(answer: Answer, encoding: str) -> Stream:
    if encoding not in ("gzip", "x-gzip") or answer.status == PARTIAL:
        words = f"{shown(answer.url)} sends its data encoded as {encoding!r}, which was not asked for"
        raise TransferError("not_the_data", words, shown(answer.url))
    return InflatingStream(answer, info_of(answer))
