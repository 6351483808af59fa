"""Where the fault proxy takes its answers from: another server, or files of a folder.

An Answer is a head that can still be changed, and a body that is moved to the client by the kernel where both
sides are plain sockets (sendfile, splice), else through one large buffer.
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

CHUNK = 1 << 20
_LARGEST_HEAD = 1 << 17
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")
_UPSTREAM_TIMEOUT_S = 60.0


@dataclass
class Head:
    """A request's or an answer's first line and its fields, as they came."""

    first: str
    fields: list[tuple[str, str]] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.fields if key.lower() == name.lower()), None)

    def set(self, name: str, value: str) -> None:
        self.drop(name)
        self.fields.append((name, value))

    def drop(self, *names: str) -> None:
        gone = {name.lower() for name in names}
        self.fields = [pair for pair in self.fields if pair[0].lower() not in gone]

    def encode(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read_head(stream: socket.socket, already: bytes = b"") -> tuple[Head, bytes] | None:
    """The head and the bytes that came after it; None if the other side left before it was whole."""
    seen = already
    while b"\r\n\r\n" not in seen:
        more = stream.recv(1 << 16)
        if not more or len(seen) > _LARGEST_HEAD:
            return None
        seen += more
    head, _, rest = seen.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(first, [(name.strip(), value.strip()) for name, _, value in pairs]), rest


class Body(Protocol):
    def move(self, client: socket.socket, count: int) -> int:
        """Send up to count bytes to the client, at least one; 0 at the end."""
        ...

    def read(self, count: int) -> bytes:
        """Up to count bytes; b"" at the end."""
        ...

    def close(self) -> None: ...


@dataclass
class Answer:
    head: Head
    length: int | None  # bytes of the body; None: it ends with the connection
    body: Body
    start: int = 0  # the place in the object of the body's first byte


Upstream = Callable[[str, str, Head, bytes], Answer]
"""From method, target, request head and request body to an answer."""


class BytesBody:
    """A page of the proxy's own."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    def read(self, count: int) -> bytes:
        piece, self._data = self._data[:count], self._data[count:]
        return piece

    def move(self, client: socket.socket, count: int) -> int:
        piece = self.read(count)
        client.sendall(piece)
        return len(piece)

    def close(self) -> None:
        """Nothing is held."""


def page(status: str, body: bytes = b"", **fields: str) -> Answer:
    head = Head(f"HTTP/1.1 {status}", [(name.replace("_", "-"), value) for name, value in fields.items()])
    head.set("Content-Length", str(len(body)))
    return Answer(head, len(body), BytesBody(body))


class Folder:
    """Answers from files: GET and HEAD, single ranges, ETags."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, method: str, target: str, request: Head, body: bytes) -> Answer:
        if method not in ("GET", "HEAD"):
            return page("405 Method Not Allowed")
        parts = [part for part in unquote(urlsplit(target).path).split("/") if part not in ("", ".", "..")]
        path = self._root.joinpath(*parts)
        if not path.is_file():
            return page("404 Not Found", b"404 page not found\n", Content_Type="text/plain")
        return _answer_with_file(path, request.get("Range"))


def _answer_with_file(path: Path, asked: str | None) -> Answer:
    status = path.stat()
    size = status.st_size
    start, stop, partial = _span(asked, size)
    if partial and start >= size:
        return page("416 Range Not Satisfiable", Content_Range=f"bytes */{size}")
    head = Head("HTTP/1.1 206 Partial Content" if partial else "HTTP/1.1 200 OK")
    head.set("Content-Length", str(stop - start))
    head.set("Content-Type", "application/octet-stream")
    head.set("Accept-Ranges", "bytes")
    head.set("ETag", f'"{status.st_mtime_ns:x}-{size:x}"')
    head.set("Last-Modified", email.utils.formatdate(status.st_mtime, usegmt=True))
    if partial:
        head.set("Content-Range", f"bytes {start}-{stop - 1}/{size}")
    return Answer(head, stop - start, FileBody(path, start, stop), start)


def _span(asked: str | None, size: int) -> tuple[int, int, bool]:
    found = _RANGE.match(asked or "")
    if not found or found.groups() == ("", ""):
        return 0, size, False
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size, True
    return int(first), min(size, int(last) + 1) if last else size, True


class FileBody:
    def __init__(self, path: Path, start: int, stop: int) -> None:
        self._file, self._at, self._stop = os.open(path, os.O_RDONLY), start, stop

    def read(self, count: int) -> bytes:
        piece = os.pread(self._file, min(count, self._stop - self._at), self._at)
        self._at += len(piece)
        return piece

    def move(self, client: socket.socket, count: int) -> int:
        if isinstance(client, ssl.SSLSocket):
            piece = self.read(min(count, CHUNK))
            client.sendall(piece)
            return len(piece)
        moved = os.sendfile(client.fileno(), self._file, self._at, min(count, self._stop - self._at))
        self._at += moved
        return moved

    def close(self) -> None:
        os.close(self._file)


class Server:
    """Answers from another server: one connection to it for each request, so that it may end an answer as it likes."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        at = urlsplit(url)
        self._host, self._tls = at.hostname or "", at.scheme == "https"
        self._port = at.port or (443 if self._tls else 80)
        self._context = ssl.create_default_context(cafile=str(ca) if ca else None) if self._tls else None

    def __call__(self, method: str, target: str, request: Head, body: bytes) -> Answer:
        request.set("Connection", "close")
        try:
            upstream = self._connect()
            upstream.sendall(request.encode() + body)
            found = read_head(upstream)
        except OSError:
            found = None
        return _relayed(method, upstream, *found) if found else page("502 Bad Gateway")

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), _UPSTREAM_TIMEOUT_S)
        return self._context.wrap_socket(plain, server_hostname=self._host) if self._context else plain


def _relayed(method: str, upstream: socket.socket, head: Head, rest: bytes) -> Answer:
    head.drop("Connection", "Keep-Alive")
    place = _CONTENT_RANGE.match(head.get("Content-Range") or "")
    has_body = method != "HEAD" and head.first.split()[1] not in ("204", "304")
    said = head.get("Content-Length")
    length = 0 if not has_body else None if said is None else int(said)
    return Answer(head, length, SocketBody(upstream, rest), int(place.group(1)) if place else 0)


class SocketBody:
    def __init__(self, upstream: socket.socket, rest: bytes) -> None:
        self._upstream, self._rest = upstream, rest
        self._pipe: tuple[int, int] | None = None

    def read(self, count: int) -> bytes:
        if not self._rest:
            return self._upstream.recv(min(count, CHUNK))
        piece, self._rest = self._rest[:count], self._rest[count:]
        return piece

    def move(self, client: socket.socket, count: int) -> int:
        plain = not isinstance(client, ssl.SSLSocket) and not isinstance(self._upstream, ssl.SSLSocket)
        if plain and not self._rest and hasattr(os, "splice"):
            return self._splice(client, min(count, CHUNK))
        piece = self.read(count)
        client.sendall(piece)
        return len(piece)

    def _splice(self, client: socket.socket, count: int) -> int:
        if self._pipe is None:
            self._upstream.settimeout(None)  # splice knows no timeouts of Python's
            self._pipe = os.pipe()
        taken = left = os.splice(self._upstream.fileno(), self._pipe[1], count)
        while left:
            left -= os.splice(self._pipe[0], client.fileno(), left)
        return taken

    def close(self) -> None:
        self._upstream.close()
        for end in self._pipe or ():
            os.close(end)
