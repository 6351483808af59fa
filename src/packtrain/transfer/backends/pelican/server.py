"""A server that a federation's director named: HTTP, with the federation's tokens and transfer status.

A cache may find in mid-body that its origin has failed. Asked to, it says so in a trailer, `X-Transfer-Status`, behind
a body that looks complete.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Digest, Ref
from packtrain.transfer.api import WHOLE, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.backends.http import HttpStore, range_header, stream_of
from packtrain.transfer.bearer_tokens import own_token
from packtrain.transfer.http.client import Answer, Request, send
from packtrain.transfer.http.response import info_of
from packtrain.transfer.http.webdav import Listed, listed
from packtrain.transfer.urls import shown

_TELL_STATUS = {"X-Transfer-Status": "true", "TE": "trailers"}
_TELL_DIGEST = {
    "Want-Digest": "sha-256, md5, crc32c, adler32",  # the first that the server has
    "Want-Repr-Digest": "sha-256=10, md5=5, crc32c=2, adler=1",
}
_TELL_LIGHTEST = {"Want-Digest": "adler32", "Want-Repr-Digest": "adler=1"}
_STATUS = re.compile(r"\s*(\d+)\s*:?\s*(.*)")


class ServerStore(HttpStore):
    """Source and Sink of one cache or origin. `needs_token`: its namespace lets nobody in without one."""

    def __init__(self, reveal: Reveal, needs_token: bool, federation: str = "") -> None:
        super().__init__(reveal)
        self.needs_token, self._federation = needs_token, federation
        self._infos: dict[str, ObjectInfo] = {}

    def stat(self, ref: Ref) -> ObjectInfo:
        """Every such server honours ranges; XRootD does not say so."""
        return replace(super().stat(ref), ranges=True)

    def digest(self, ref: Ref) -> Digest | None:
        """As the server makes it when asked, if it does."""
        digest, stated = self._asked(ref, _TELL_DIGEST)
        if stated and digest is None:
            digest, _ = self._asked(ref, _TELL_LIGHTEST)
        return digest

    def _asked(self, ref: Ref, wishes: dict[str, str]) -> tuple[Digest | None, bool]:
        """And whether there is one at all, be it one that cannot be computed here."""
        answer = send(self._request(ref, "HEAD", wishes))
        answer.close()
        if answer.status != 200:
            return None, False
        return info_of(answer).digest, bool(answer.headers.get("Digest") or answer.headers.get("Repr-Digest"))

    def open(self, ref: Ref, span: Span = WHOLE) -> Stream:
        if span != WHOLE:
            info = self._known(ref)
            span = within(span, info.size)
            if span.start == span.stop:
                return NothingStream(info, span.start)
        return self._open(ref, span)

    def _stat_by_get(self, ref: Ref) -> ObjectInfo:
        stream = self._open(ref, Span(0, 1))
        stream.close()
        return stream.info

    def _open(self, ref: Ref, span: Span) -> Stream:
        request = self._request(ref, "GET", {**range_header(span), **_TELL_STATUS})
        answer = send(request)
        try:
            return WitnessedStream(stream_of(answer, span, bool(request.secrets)), answer, span)
        except BaseException:
            answer.close()
            raise

    def _known(self, ref: Ref) -> ObjectInfo:
        """Asked once: all servers of a federation have the same object under one path."""
        path = urlsplit(ref.url).path
        if path not in self._infos:
            self._infos[path] = self.stat(ref)
        return self._infos[path]

    def folder(self, ref: Ref) -> list[Listed]:
        return listed(self._request(ref, "PROPFIND", {"Depth": "1"}))

    def _request(self, ref: Ref, method: str, extra: dict[str, str] | None = None) -> Request:
        if self.needs_token and ref.token is None and ref.url.startswith("https://"):
            ref = replace(ref, token=own_token(self._federation))
        return super()._request(ref, method, extra)


def within(span: Span, size: int | None) -> Span:
    """The span with an end, and none behind the object's: XRootD before 5.6 answers others wrongly."""
    if size is None:
        return span
    start = min(span.start, size)
    return Span(start, size if span.stop is None else max(start, min(span.stop, size)))


class NothingStream:
    """The bytes behind the last."""

    def __init__(self, info: ObjectInfo, start: int) -> None:
        self.info, self.start = info, start

    def read(self, size: int, /) -> bytes:
        return b""

    def readinto(self, buffer: memoryview, /) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to close."""


class WitnessedStream:
    """A body that counts only if the server does not take it back behind its end."""

    def __init__(self, stream: Stream, answer: Answer, span: Span) -> None:
        self.info, self.start = stream.info, stream.start
        self._stream, self._answer = stream, answer
        self._left = _promised(stream, span) if answer.headers.get("Transfer-Encoding") else None

    def read(self, size: int, /) -> bytes:
        view = memoryview(bytearray(size))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._stream.readinto(buffer)
        if self._left is not None:
            self._left -= count
        if not count:
            self._check()
        elif self._left == 0:
            # Whoever knows the length reads no further, so the end is looked for before the last bytes are given.
            self._stream.read(1)
            self._check()
        return count

    def _check(self) -> None:
        found = _STATUS.match(self._answer.trailers.get("X-Transfer-Status") or "200")
        if found and found.group(1) != "200":
            url = shown(self._answer.url)
            words = f"{url}: the server says behind the body that the transfer failed: {' '.join(found.groups())}"
            raise TransferError("truncated", words.rstrip(), url)

    def close(self) -> None:
        self._stream.close()


def _promised(stream: Stream, span: Span) -> int | None:
    if stream.info.size is None:
        return None
    end = stream.info.size if span.stop is None or stream.start != span.start else min(span.stop, stream.info.size)
    return end - stream.start
