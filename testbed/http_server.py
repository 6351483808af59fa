"""A real HTTP/1.1 origin that serves a folder: ranges, ETags, tokens, PUT, a throttle, and faults on demand.

In a test:      with Origin(folder, token="t") as origin: … origin.url …
On its own:     python -m testbed.http_server FOLDER --port 0 --token-env NAME     (prints its URL)

Faults are a script: each request takes the next one of `origin.faults`; None is a good answer, and so is
whatever comes after the last.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

_BLOCK = 1 << 14
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
_LONGEST_STALL_S = 60.0


@dataclass(frozen=True)
class Fault:
    """One bad answer. Offsets count the bytes of this answer's body."""

    status: int | None = None  # this status instead of the object
    headers: Mapping[str, str] | None = None  # sent with it, e.g. Location
    page: bytes | None = None  # this body, as an HTML page; with status 200 unless `status` says otherwise
    close_after: int | None = None  # the connection ends after so many bytes
    truncate: int | None = None  # so many bytes, and a Content-Length to match
    stall_after: int | None = None  # nothing more after so many bytes, until `origin.release()`
    corrupt_at: int | None = None  # the byte at this offset is changed
    no_range: bool = False  # the whole object, whatever was asked
    no_length: bool = False  # neither Content-Length nor chunks: the end of the connection is the end
    chunked: bool = False


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    client: tuple[object, ...]  # its address: the same for all requests of a connection


class Origin:
    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        writable: bool = False,
        bytes_per_s: float | None = None,
        faults: Iterable[Fault | None] = (),
        headers: Mapping[str, str] | None = None,
        refuses: Iterable[str] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.folder, self.token, self.writable, self.bytes_per_s = folder, token, writable, bytes_per_s
        self.faults, self.headers, self.refuses = list(faults), dict(headers or {}), frozenset(refuses)
        self.seen: list[Seen] = []
        self.sent = 0  # bytes of bodies handed to clients
        self.stalled = threading.Event()  # set when an answer has begun to stall
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server((host, port), type("Handler", (_Handler,), {"origin": self}))
        self._scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._host = host

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Origin:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def release(self) -> None:
        """Let every stalled answer go on."""
        self._released.set()

    def note(self, seen: Seen) -> Fault:
        """Remember the request; the fault that it gets."""
        with self._lock:
            self.seen.append(seen)
            return (self.faults.pop(0) if self.faults else None) or Fault()

    def count(self, sent: int) -> None:
        with self._lock:
            self.sent += sent

    def stall(self) -> None:
        self.stalled.set()
        self._released.wait(_LONGEST_STALL_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in mid-answer are what this server is for."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin: Origin

    def log_message(self, *args: Any) -> None:
        """Silence: tests read `origin.seen`."""

    def handle_any(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.origin.note(Seen(self.command, self.path, headers, self.client_address))
        refusal = self._refusal(fault)
        if refusal is not None:
            self._say(*refusal, fault.headers or {})
        elif self.command == "PUT":
            self._store()
        elif self.command == "DELETE":
            self._remove()
        else:
            self._serve(fault)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def _refusal(self, fault: Fault) -> tuple[int, bytes] | None:
        if fault.status is not None or fault.page is not None:
            return fault.status or 200, fault.page or b""
        if self.origin.token is not None and self.headers.get("Authorization") != f"Bearer {self.origin.token}":
            return 401, b""
        if self.command in self.origin.refuses or (self.command in ("PUT", "DELETE") and not self.origin.writable):
            return 405, b""
        return None

    def _path(self) -> Path:
        """Below the folder, whatever `..` the address has."""
        parts = [part for part in unquote(urlsplit(self.path).path).split("/") if part not in ("", ".", "..")]
        return self.origin.folder.joinpath(*parts)

    def _say(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        if self.command == "PUT" and not body:
            self.close_connection = True  # its body was not read
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _store(self) -> None:
        path, left = self._path(), int(self.headers.get("Content-Length") or 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}.new")
        with open(temporary, "wb") as file:
            while left:
                block = self.rfile.read(min(_BLOCK, left))
                if not block:
                    temporary.unlink()
                    return
                file.write(block)
                left -= len(block)
        temporary.replace(path)
        self._say(201)

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path().unlink()
            return self._say(204)
        return self._say(404)

    def _serve(self, fault: Fault) -> None:
        try:
            with open(self._path(), "rb") as file:
                self._serve_file(file, fault)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._say(404, b"404 page not found\n")

    def _serve_file(self, file: BinaryIO, fault: Fault) -> None:
        status = os.fstat(file.fileno())
        size, etag = status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        asked = None if fault.no_range else _RANGE.match(self.headers.get("Range") or "")
        start = int(asked.group(1)) if asked else 0
        stop = min(size, int(asked.group(2)) + 1) if asked and asked.group(2) else size
        if asked and start >= stop:  # as nginx does, also where the last byte stands before the first
            return self._say(416, b"", {"Content-Range": f"bytes */{size}", "ETag": etag})
        length = stop - start if fault.truncate is None else min(fault.truncate, stop - start)
        self._send_head(206 if asked else 200, f"bytes {start}-{stop - 1}/{size}", length, etag, fault)
        if self.command == "GET":
            file.seek(start)
            self._send_body(_blocks(file, length), fault)
        return None

    def _send_head(self, status: int, content_range: str, length: int, etag: str, fault: Fault) -> None:
        self.send_response(status)
        fields = {"Content-Type": "application/octet-stream", "ETag": etag, "Accept-Ranges": "bytes"}
        if fault.no_range:
            del fields["Accept-Ranges"]
        if status == 206:
            fields["Content-Range"] = content_range
        if fault.chunked:
            fields["Transfer-Encoding"] = "chunked"
        elif not fault.no_length:
            fields["Content-Length"] = str(length)
        for name, value in {**fields, **self.origin.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection |= fault.no_length or fault.close_after is not None

    def _send_body(self, blocks: Iterator[bytes], fault: Fault) -> None:
        sent = 0
        for block in blocks:
            for piece in _cut(block, sent, fault):
                if fault.stall_after == sent:
                    self.origin.stall()
                if fault.close_after == sent:
                    return
                self._send_piece(_corrupted(piece, sent, fault), fault)
                sent += len(piece)
        if fault.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send_piece(self, piece: bytes, fault: Fault) -> None:
        self.origin.count(len(piece))  # before the client has it, who may look at the count at once
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if fault.chunked else piece)
        if self.origin.bytes_per_s:
            time.sleep(len(piece) / self.origin.bytes_per_s)


def _blocks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length:
        block = file.read(min(_BLOCK, length))
        if not block:
            return
        length -= len(block)
        yield block


def _cut(block: bytes, sent: int, fault: Fault) -> Iterator[bytes]:
    """The block, divided where a fault happens."""
    faults = (at - sent for at in (fault.stall_after, fault.close_after) if at is not None)
    edges = [0, *sorted({at for at in faults if 0 < at < len(block)}), len(block)]
    for begin, end in ((edges[i], edges[i + 1]) for i in range(len(edges) - 1)):
        yield block[begin:end]


def _corrupted(piece: bytes, sent: int, fault: Fault) -> bytes:
    at = -1 if fault.corrupt_at is None else fault.corrupt_at - sent
    return piece[:at] + bytes([piece[at] ^ 0xFF]) + piece[at + 1 :] if 0 <= at < len(piece) else piece


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.http_server", description="Serve a folder over HTTP.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-env", help="the name of a variable that holds the bearer token to demand")
    parser.add_argument("--writable", action="store_true", help="allow PUT and DELETE")
    parser.add_argument("--bytes-per-s", type=float, help="throttle each answer")
    given = parser.parse_args()
    token = os.environ[given.token_env] if given.token_env else None
    origin = Origin(
        given.folder,
        host=given.host,
        port=given.port,
        token=token,
        writable=given.writable,
        bytes_per_s=given.bytes_per_s,
    )
    print(origin.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        origin.serve_forever()


if __name__ == "__main__":
    main()
