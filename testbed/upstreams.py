"""Upstreams of the fault proxy: another server, or the files of a folder.

An UpstreamResponse has a head that can still be changed, and a body. The kernel copies the body to the client if both
sides are plain sockets (sendfile, splice); else it is copied through one large buffer.
"""

from __future__ import annotations

import email.utils
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

CHUNK_BYTES = 1 << 20
_MAX_HEAD_BYTES = 1 << 17
_RANGE_HEADER = re.compile(r"bytes=(\d*)-(\d*)$")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")
_UPSTREAM_TIMEOUT_S = 60.0


@dataclass
class MessageHead:
    """The first line and the headers of a request or response, as received."""

    start_line: str
    headers: list[tuple[str, str]] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def set(self, name: str, value: str) -> None:
        self.remove(name)
        self.headers.append((name, value))

    def remove(self, *names: str) -> None:
        removed = {name.lower() for name in names}
        self.headers = [pair for pair in self.headers if pair[0].lower() not in removed]

    def encode(self) -> bytes:
        lines = [self.start_line, *(f"{name}: {value}" for name, value in self.headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read_head(sock: socket.socket, buffered: bytes = b"") -> tuple[MessageHead, bytes] | None:
    """Read a head. Return it and the bytes after it, or None if the connection closes before it is complete."""
    data = buffered
    while b"\r\n\r\n" not in data:
        chunk = sock.recv(1 << 16)
        if not chunk or len(data) > _MAX_HEAD_BYTES:
            return None
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return MessageHead(first, [(name.strip(), value.strip()) for name, _, value in pairs]), rest


class Body(Protocol):
    """The body of a response."""

    def send_to(self, client: socket.socket, max_bytes: int) -> int:
        """Send up to `max_bytes` to the client. Return the number of bytes, 0 at the end."""
        ...

    def read(self, max_bytes: int) -> bytes:
        """Return up to `max_bytes`, b"" at the end."""
        ...

    def close(self) -> None: ...


@dataclass
class UpstreamResponse:
    """A response that the proxy can still change."""

    head: MessageHead
    length: int | None  # of the body in bytes; None: it ends with the connection
    body: Body
    object_offset: int = 0  # offset of the first body byte in the object


Upstream = Callable[[str, str, MessageHead, bytes], UpstreamResponse]
"""A function from method, target, request head and request body to a response."""


class BytesBody:
    """A body in memory."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    def read(self, max_bytes: int) -> bytes:
        chunk, self._data = self._data[:max_bytes], self._data[max_bytes:]
        return chunk

    def send_to(self, client: socket.socket, max_bytes: int) -> int:
        chunk = self.read(max_bytes)
        client.sendall(chunk)
        return len(chunk)

    def close(self) -> None:
        """Do nothing."""


def make_response(status: str, body: bytes = b"", **headers: str) -> UpstreamResponse:
    """Return a response of the proxy itself; `_` in header names stands for `-`."""
    head = MessageHead(f"HTTP/1.1 {status}", [(name.replace("_", "-"), value) for name, value in headers.items()])
    head.set("Content-Length", str(len(body)))
    return UpstreamResponse(head, len(body), BytesBody(body))


class FolderUpstream:
    """Serves the files of a folder: GET and HEAD, single ranges, ETags."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, method: str, target: str, request: MessageHead, body: bytes) -> UpstreamResponse:
        if method not in ("GET", "HEAD"):
            return make_response("405 Method Not Allowed")
        parts = [part for part in unquote(urlsplit(target).path).split("/") if part not in ("", ".", "..")]
        path = self._root.joinpath(*parts)
        if not path.is_file():
            return make_response("404 Not Found", b"404 page not found\n", Content_Type="text/plain")
        return _file_response(path, request.get("Range"))


def _file_response(path: Path, range_header: str | None) -> UpstreamResponse:
    status = path.stat()
    size = status.st_size
    start, stop, partial = _parse_range(range_header, size)
    if partial and start >= size:
        return make_response("416 Range Not Satisfiable", Content_Range=f"bytes */{size}")
    head = MessageHead("HTTP/1.1 206 Partial Content" if partial else "HTTP/1.1 200 OK")
    head.set("Content-Length", str(stop - start))
    head.set("Content-Type", "application/octet-stream")
    head.set("Accept-Ranges", "bytes")
    head.set("ETag", f'"{status.st_mtime_ns:x}-{size:x}"')
    head.set("Last-Modified", email.utils.formatdate(status.st_mtime, usegmt=True))
    if partial:
        head.set("Content-Range", f"bytes {start}-{stop - 1}/{size}")
    return UpstreamResponse(head, stop - start, FileBody(path, start, stop), start)


def _parse_range(range_header: str | None, size: int) -> tuple[int, int, bool]:
    match = _RANGE_HEADER.match(range_header or "")
    if not match or match.groups() == ("", ""):
        return 0, size, False
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size, True
    return int(first), min(size, int(last) + 1) if last else size, True


class FileBody:
    """A range of a file."""

    def __init__(self, path: Path, start: int, stop: int) -> None:
        self._fd, self._offset, self._end_offset = os.open(path, os.O_RDONLY), start, stop

    def read(self, max_bytes: int) -> bytes:
        chunk = os.pread(self._fd, min(max_bytes, self._end_offset - self._offset), self._offset)
        self._offset += len(chunk)
        return chunk

    def send_to(self, client: socket.socket, max_bytes: int) -> int:
        if isinstance(client, ssl.SSLSocket):
            chunk = self.read(min(max_bytes, CHUNK_BYTES))
            client.sendall(chunk)
            return len(chunk)
        sent = os.sendfile(client.fileno(), self._fd, self._offset, min(max_bytes, self._end_offset - self._offset))
        self._offset += sent
        return sent

    def close(self) -> None:
        os.close(self._fd)


class ServerUpstream:
    """Forwards requests to another server, with one connection per request so that it may close it."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._uses_tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._uses_tls else 80)
        self._tls_context = (
            ssl.create_default_context(cafile=str(ca_file) if ca_file else None) if self._uses_tls else None
        )

    def __call__(self, method: str, target: str, request: MessageHead, body: bytes) -> UpstreamResponse:
        request.set("Connection", "close")
        try:
            upstream = self._connect()
            upstream.sendall(request.encode() + body)
            message = read_head(upstream)
        except OSError:
            message = None
        return _relay_response(method, upstream, *message) if message else make_response("502 Bad Gateway")

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), _UPSTREAM_TIMEOUT_S)
        return self._tls_context.wrap_socket(plain, server_hostname=self._host) if self._tls_context else plain


def _relay_response(method: str, upstream: socket.socket, head: MessageHead, buffered: bytes) -> UpstreamResponse:
    head.remove("Connection", "Keep-Alive")
    content_range = _CONTENT_RANGE.match(head.get("Content-Range") or "")
    has_body = method != "HEAD" and head.start_line.split()[1] not in ("204", "304")
    content_length = head.get("Content-Length")
    length = 0 if not has_body else None if content_length is None else int(content_length)
    return UpstreamResponse(
        head, length, SocketBody(upstream, buffered), int(content_range.group(1)) if content_range else 0
    )


class SocketBody:
    """The body of a response on a socket; `buffered` are bytes already received."""

    def __init__(self, upstream: socket.socket, buffered: bytes) -> None:
        self._upstream, self._buffered = upstream, buffered
        self._pipe: tuple[int, int] | None = None

    def read(self, max_bytes: int) -> bytes:
        if not self._buffered:
            return self._upstream.recv(min(max_bytes, CHUNK_BYTES))
        chunk, self._buffered = self._buffered[:max_bytes], self._buffered[max_bytes:]
        return chunk

    def send_to(self, client: socket.socket, max_bytes: int) -> int:
        is_plain = not isinstance(client, ssl.SSLSocket) and not isinstance(self._upstream, ssl.SSLSocket)
        if is_plain and not self._buffered and hasattr(os, "splice"):
            return self._splice(client, min(max_bytes, CHUNK_BYTES))
        chunk = self.read(max_bytes)
        client.sendall(chunk)
        return len(chunk)

    def _splice(self, client: socket.socket, max_bytes: int) -> int:
        if self._pipe is None:
            self._upstream.settimeout(None)  # splice does not work with Python's timeouts
            self._pipe = os.pipe()
        received = remaining = os.splice(self._upstream.fileno(), self._pipe[1], max_bytes)
        while remaining:
            remaining -= os.splice(self._pipe[0], client.fileno(), remaining)
        return received

    def close(self) -> None:
        self._upstream.close()
        for end in self._pipe or ():
            os.close(end)
