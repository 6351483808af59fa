"""Source (GET with ranges) and sink (PUT of one file) for http:// and https:// URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Location, Secret
from packtrain.transfer.api import FULL_RANGE, ByteRange, ListedObject, ObjectInfo, ObjectStream, SecretResolver
from packtrain.transfer.http.client import Request, Response, send_request
from packtrain.transfer.http.headers import INVALID_CHARACTER, parse_content_range
from packtrain.transfer.http.response import (
    PARTIAL_CONTENT,
    RANGE_NOT_SATISFIABLE,
    error_from_response,
    parse_content_encoding,
    parse_object_info,
    parse_object_size,
)
from packtrain.transfer.http.routes import basic_auth_header
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.urls import redact_url

_HEAD_UNSUPPORTED_STATUSES = frozenset({403, 405, 501})
_MAX_ANSWER_CHARS = 1000
_CREDENTIAL_HEADER = re.compile(r"auth|cookie|token|secret|key|passw|signature|credential", re.IGNORECASE)


class HttpStream:
    """The body of a response."""

    def __init__(self, response: Response, info: ObjectInfo, start: int) -> None:
        self.info, self.start = info, start
        self._response = response

    def read(self, size: int, /) -> bytes:
        return self._response.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        return self._response.readinto(buffer)

    def close(self) -> None:
        self._response.close()


class EmptyStream:
    """A stream at the end of an object."""

    def __init__(self, info: ObjectInfo, start: int) -> None:
        self.info, self.start = info, start

    def read(self, size: int, /) -> bytes:
        return b""

    def readinto(self, buffer: memoryview, /) -> int:
        return 0

    def close(self) -> None:
        """Do nothing."""


class GzipStream(HttpStream):
    """A body that the server compressed with gzip although the request did not allow it."""

    def __init__(self, response: Response, info: ObjectInfo) -> None:
        import gzip

        super().__init__(response, info, 0)
        self._gzip_file = gzip.GzipFile(fileobj=cast(BinaryIO, response))

    def read(self, size: int, /) -> bytes:
        import zlib

        url = redact_url(self._response.url)
        try:
            return self._gzip_file.read1(size)
        except EOFError as error:
            raise TransferError("truncated", f"{url}: the compressed body ended early", url) from error
        except (OSError, zlib.error) as error:
            raise TransferError(
                "unexpected_content", f"{url}: the compressed body is damaged ({error})", url
            ) from error

    def readinto(self, buffer: memoryview, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class HttpBackend:
    """Implements Source and Sink over HTTP."""

    def __init__(self, resolve_secret: SecretResolver) -> None:
        self._resolve_secret = resolve_secret

    def stat(self, location: Location) -> ObjectInfo:
        request = self._build_request(location, "HEAD")
        response = send_request(request)
        response.close()
        if response.status in _HEAD_UNSUPPORTED_STATUSES:
            return self._stat_with_get(location)
        if response.status != 200:
            raise error_from_response(response, bool(request.secret_headers))
        return parse_object_info(response)

    def _stat_with_get(self, location: Location) -> ObjectInfo:
        stream = self.open(location, ByteRange(0, 1))
        stream.close()
        return stream.info

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> ObjectStream:
        request = self._build_request(location, "GET", range_header(byte_range))
        response = send_request(request)
        try:
            return stream_from_response(response, byte_range, bool(request.secret_headers))
        except BaseException:
            response.close()
            raise

    def list(self, location: Location) -> Iterable[ListedObject]:
        message = f"{redact_url(location.url)}: HTTP has no folder listings; name the files"
        raise TransferError("unsupported", message, redact_url(location.url))

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> str | None:
        request = replace(self._build_request(location, "PUT"), body=path, on_bytes_sent=on_bytes_sent)
        return self._send_and_check(request, expected_statuses=(200, 201, 202, 204))

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        raise _no_copy_error(target)

    def delete(self, location: Location) -> None:
        self._send_and_check(self._build_request(location, "DELETE"), expected_statuses=(200, 202, 204, 404, 410))

    def _send_and_check(self, request: Request, expected_statuses: tuple[int, ...]) -> str | None:
        response = send_request(request)
        try:
            if response.status not in expected_statuses:
                raise error_from_response(response, bool(request.secret_headers))
            return _read_answer(response)
        finally:
            response.close()

    def _build_request(self, location: Location, method: str, extra_headers: dict[str, str] | None = None) -> Request:
        public, secrets = split_secret_headers(location, self._resolve_secret)
        return Request(location.url, method, {**public, **(extra_headers or {})}, secrets)


def _no_copy_error(target: Location) -> TransferError:
    url = redact_url(target.url)
    return TransferError("unsupported", f"{url}: HTTP cannot copy objects on a server", url)


def _read_answer(response: Response) -> str | None:
    """Return a short text body, which services use to name the link of an upload; None if there is none."""
    if "html" in response.headers.get("Content-Type", ""):
        return None
    answer = response.read_explanation().strip()
    return answer if len(answer) <= _MAX_ANSWER_CHARS and answer.isprintable() and answer else None


def split_secret_headers(location: Location, resolve_secret: SecretResolver) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers of a location: public ones, and secret ones that only its own host may receive."""
    public: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for header in location.headers:
        is_secret = isinstance(header.value, Secret) or _CREDENTIAL_HEADER.search(header.name)
        (secrets if is_secret else public)[header.name] = _validate_header_value(
            header.name, resolve_secret(header.value)
        )
    if location.token is not None:
        secrets["Authorization"] = "Bearer " + _validate_header_value("Authorization", resolve_secret(location.token))
    elif urlsplit(location.url).username and "Authorization" not in secrets:
        secrets["Authorization"] = basic_auth_header(urlsplit(location.url))
    return public, secrets


def _validate_header_value(name: str, value: str) -> str:
    """Return the stripped value. Raises FailedError without quoting the secret."""
    if INVALID_CHARACTER.search(value.strip()):
        raise FailedError("access_denied", f"the value of the header {name} has characters that cannot be sent")
    return value.strip()


def range_header(byte_range: ByteRange) -> dict[str, str]:
    """Return the Range header, or {} for the whole object."""
    if byte_range == FULL_RANGE:
        return {}
    return {"Range": f"bytes={byte_range.start}-{'' if byte_range.stop is None else byte_range.stop - 1}"}


def stream_from_response(response: Response, byte_range: ByteRange, has_credentials: bool) -> ObjectStream:
    """Return the stream of a response. Raises TransferError for error statuses and wrong ranges."""
    if response.status == RANGE_NOT_SATISFIABLE:
        return _make_empty_stream(response, byte_range, has_credentials)
    if response.status not in (200, PARTIAL_CONTENT):
        raise error_from_response(response, has_credentials)
    encoding = parse_content_encoding(response)
    if encoding is not None:
        return _make_gzip_stream(response, encoding)
    start = parse_content_range(response.headers)[0] if response.status == PARTIAL_CONTENT else 0
    if start not in (0, byte_range.start):
        message = f"{redact_url(response.url)} returned another byte range than requested (from {byte_range.start})"
        raise TransferError("service_unavailable", message, redact_url(response.url))
    return HttpStream(response, parse_object_info(response), start or 0)


def _make_empty_stream(response: Response, byte_range: ByteRange, has_credentials: bool) -> ObjectStream:
    """Return an empty stream for a 416 whose range starts at or beyond the end of the object."""
    size = parse_object_size(response)
    if size is None or byte_range.start < size:
        raise error_from_response(response, has_credentials)
    response.close()
    return EmptyStream(parse_object_info(response), byte_range.start)


def _make_gzip_stream(response: Response, encoding: str) -> ObjectStream:
    if encoding not in ("gzip", "x-gzip") or response.status == PARTIAL_CONTENT:
        message = f"{redact_url(response.url)} uses the content encoding {encoding!r}, which was not requested"
        raise TransferError("unexpected_content", message, redact_url(response.url))
    return GzipStream(response, parse_object_info(response))
