"""One cache or origin of a federation: HTTP with the federation's tokens and transfer status.

A cache may detect in the middle of a body that its origin failed. On request it reports that in the trailer
`X-Transfer-Status` after a body that looks complete.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location
from packtrain.transfer.api import FULL_RANGE, ByteRange, ObjectInfo, ObjectStream, SecretResolver
from packtrain.transfer.backends.http import EmptyStream, HttpBackend, range_header, stream_from_response
from packtrain.transfer.credentials import find_token
from packtrain.transfer.http.client import Request, Response, send_request
from packtrain.transfer.http.response import error_from_response, parse_object_info
from packtrain.transfer.http.webdav import WebDavEntry, list_folder
from packtrain.transfer.urls import redact_url, url_origin

_TRANSFER_STATUS_HEADERS = {"X-Transfer-Status": "true", "TE": "trailers"}
_WANT_DIGEST_HEADERS = {
    "Want-Digest": "sha-256, md5, crc32c, adler32",  # the server returns the first that it has
    "Want-Repr-Digest": "sha-256=10, md5=5, crc32c=2, adler=1",
}
_WANT_ADLER32_HEADERS = {"Want-Digest": "adler32", "Want-Repr-Digest": "adler=1"}
_MOVE_REFUSED_STATUSES = frozenset({400, 403, 405, 412, 501})
_TRANSFER_STATUS = re.compile(r"\s*(\d+)\s*:?\s*(.*)")


class PelicanServerBackend(HttpBackend):
    """Implements Source and Sink for one server. With `needs_token` its namespace requires a token."""

    def __init__(self, resolve_secret: SecretResolver, needs_token: bool, federation: str = "") -> None:
        super().__init__(resolve_secret)
        self.needs_token, self._federation = needs_token, federation
        self._info_cache: dict[str, ObjectInfo] = {}

    def stat(self, location: Location) -> ObjectInfo:
        """Return the object's metadata. All such servers support ranges, although XRootD does not announce it."""
        return replace(super().stat(location), accepts_ranges=True)

    def fetch_digest(self, location: Location) -> Digest | None:
        """Return the digest that the server computes on request, or None."""
        digest, stated = self._request_digest(location, _WANT_DIGEST_HEADERS)
        if stated and digest is None:
            digest, _ = self._request_digest(location, _WANT_ADLER32_HEADERS)
        return digest

    def _request_digest(self, location: Location, want_headers: dict[str, str]) -> tuple[Digest | None, bool]:
        """Return the digest, and whether the server stated any, even an unsupported one."""
        response = send_request(self._build_request(location, "HEAD", want_headers))
        response.close()
        if response.status != 200:
            return None, False
        return parse_object_info(response).digest, bool(
            response.headers.get("Digest") or response.headers.get("Repr-Digest")
        )

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream:
        if byte_range != FULL_RANGE:
            info = self._cached_stat(location)
            byte_range = clamp_to_size(byte_range, info.size)
            if byte_range.start == byte_range.stop:
                return EmptyStream(info, byte_range.start)
        return self._open(location, byte_range)

    def _stat_with_get(self, location: Location) -> ObjectInfo:
        stream = self._open(location, ByteRange(0, 1))
        stream.close()
        return stream.info

    def _open(self, location: Location, byte_range: ByteRange) -> ObjectStream:
        request = self._build_request(location, "GET", {**range_header(byte_range), **_TRANSFER_STATUS_HEADERS})
        response = send_request(request)
        try:
            return StatusCheckedStream(
                stream_from_response(response, byte_range, bool(request.secret_headers)), response, byte_range
            )
        except BaseException:
            response.close()
            raise

    def _cached_stat(self, location: Location) -> ObjectInfo:
        """Return cached metadata: all servers of a federation have the same object under a path."""
        path = urlsplit(location.url).path
        if path not in self._info_cache:
            self._info_cache[path] = self.stat(location)
        return self._info_cache[path]

    def move(self, source: Location, target_url: str) -> None:
        """Rename an object with WebDAV's MOVE. Raises TransferError, "unsupported" if the server cannot or refuses it.

        XRootD does not decode the new name, so a name with other characters than ASCII letters and digits is left out.
        """
        url = redact_url(target_url)
        if url_origin(source.url) != url_origin(target_url) or "%" in urlsplit(target_url).path:
            raise TransferError("unsupported", f"{url} cannot be named in a request to move an object", url)
        response = send_request(self._build_request(source, "MOVE", {"Destination": target_url, "Overwrite": "F"}))
        try:
            if response.status in _MOVE_REFUSED_STATUSES:
                raise TransferError("unsupported", f"{url}: the server refused to move an object there", url)
            if response.status not in (200, 201, 204):
                raise error_from_response(response, bool(source.token))
        finally:
            response.close()

    def list_folder(self, location: Location) -> list[WebDavEntry]:
        return list_folder(self._build_request(location, "PROPFIND", {"Depth": "1"}))

    def _build_request(self, location: Location, method: str, extra_headers: dict[str, str] | None = None) -> Request:
        if self.needs_token and location.token is None and location.url.startswith("https://"):
            location = replace(location, token=find_token(self._federation))
        return super()._build_request(location, method, extra_headers)


def clamp_to_size(byte_range: ByteRange, object_size: int | None) -> ByteRange:
    """Return the range with an explicit end within the object; XRootD before 5.6 mishandles others."""
    if object_size is None:
        return byte_range
    start = min(byte_range.start, object_size)
    return ByteRange(start, object_size if byte_range.stop is None else max(start, min(byte_range.stop, object_size)))


class StatusCheckedStream:
    """A body that is valid only if the trailer after its end reports no error."""

    def __init__(self, stream: ObjectStream, response: Response, byte_range: ByteRange) -> None:
        self.info, self.start = stream.info, stream.start
        self._stream, self._response = stream, response
        self._remaining_bytes = (
            _expected_bytes(stream, byte_range) if response.headers.get("Transfer-Encoding") else None
        )

    def read(self, size: int, /) -> bytes:
        view = memoryview(bytearray(size))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._stream.readinto(buffer)
        if self._remaining_bytes is not None:
            self._remaining_bytes -= count
        if not count:
            self._check_transfer_status()
        elif self._remaining_bytes == 0:
            # Callers that know the length read no further, so the trailer is checked before returning the last bytes.
            self._stream.read(1)
            self._check_transfer_status()
        return count

    def _check_transfer_status(self) -> None:
        match = _TRANSFER_STATUS.match(self._response.trailers.get("X-Transfer-Status") or "200")
        if match and match.group(1) != "200":
            url = redact_url(self._response.url)
            message = f"{url}: the server reported a failed transfer after the body: {' '.join(match.groups())}"
            raise TransferError("truncated", message.rstrip(), url)

    def close(self) -> None:
        self._stream.close()


def _expected_bytes(stream: ObjectStream, byte_range: ByteRange) -> int | None:
    if stream.info.size is None:
        return None
    end = (
        stream.info.size
        if byte_range.stop is None or stream.start != byte_range.start
        else min(byte_range.stop, stream.info.size)
    )
    return end - stream.start
