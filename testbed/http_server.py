"""A real HTTP/1.1 server for a folder, with ranges, ETags, tokens, PUT, a rate limit and faults.

In a test:      with HttpServer(folder, token="t") as server: … server.url …
On its own:     python -m testbed.http_server FOLDER --port 0 --token-env NAME     (prints its URL)

Each request takes the next entry of `server.faults`; None means a normal response, as does an empty list.
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

_BLOCK_BYTES = 1 << 14
_RANGE_HEADER = re.compile(r"bytes=(\d+)-(\d*)$")
_MAX_STALL_S = 60.0


@dataclass(frozen=True)
class ResponseFault:
    """One faulty response. Offsets are bytes of its body."""

    status: int | None = None  # respond with this status instead of the object
    headers: Mapping[str, str] | None = None  # sent with the status, e.g. Location
    html_body: bytes | None = None  # respond with this HTML page; status 200 unless `status` is set
    close_after_bytes: int | None = None  # close the connection after this many bytes
    truncate_to_bytes: int | None = None  # send this many bytes, with a matching Content-Length
    stall_after_bytes: int | None = None  # stall after this many bytes, until release_stalls()
    corrupt_offset: int | None = None  # change the byte at this offset
    ignore_range: bool = False  # send the complete object
    omit_length: bool = False  # no Content-Length and no chunks: the body ends with the connection
    chunked: bool = False


@dataclass(frozen=True)
class RecordedRequest:
    """A received request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    client_address: tuple[object, ...]  # the same for all requests on a connection


class HttpServer:
    """The server. `rejected_methods` get status 405; `tls` is a certificate and its key."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        writable: bool = False,
        bytes_per_s: float | None = None,
        faults: Iterable[ResponseFault | None] = (),
        headers: Mapping[str, str] | None = None,
        rejected_methods: Iterable[str] = (),
        tls: tuple[Path, Path] | None = None,
        upload_answer: str = "",
    ) -> None:
        self.upload_answer = upload_answer  # the text body after a PUT
        self.folder, self.token, self.writable, self.bytes_per_s = folder, token, writable, bytes_per_s
        self.faults, self.headers, self.rejected_methods = (
            list(faults),
            dict(headers or {}),
            frozenset(rejected_methods),
        )
        self.requests: list[RecordedRequest] = []
        self.sent_bytes = 0  # body bytes sent to clients
        self.stall_started = threading.Event()  # set when a response begins to stall
        self._stalls_released = threading.Event()
        self._lock = threading.Lock()
        self._server = _ThreadingServer((host, port), type("Handler", (_RequestHandler,), {"http_server": self}))
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

    def __enter__(self) -> HttpServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release_stalls()
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def release_stalls(self) -> None:
        """Resume every stalled response."""
        self._stalls_released.set()

    def record_request(self, request: RecordedRequest) -> ResponseFault:
        """Record a request and return its fault."""
        with self._lock:
            self.requests.append(request)
            return (self.faults.pop(0) if self.faults else None) or ResponseFault()

    def count_sent_bytes(self, n_bytes: int) -> None:
        with self._lock:
            self.sent_bytes += n_bytes

    def wait_in_stall(self) -> None:
        self.stall_started.set()
        self._stalls_released.wait(_MAX_STALL_S)


class _ThreadingServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during a response, as tests do on purpose."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # like real servers; otherwise small responses take 40 ms
    http_server: HttpServer

    def log_message(self, *args: Any) -> None:
        """Log nothing: tests read `HttpServer.requests`."""

    def handle_request(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.http_server.record_request(RecordedRequest(self.command, self.path, headers, self.client_address))
        error = self._error_response(fault)
        if error is not None:
            self._respond(*error, fault.headers or {})
        elif self.command == "PUT":
            self._handle_put()
        elif self.command == "DELETE":
            self._handle_delete()
        else:
            self._handle_get(fault)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_request  # noqa: N815 - names of the base class

    def _error_response(self, fault: ResponseFault) -> tuple[int, bytes] | None:
        if fault.status is not None or fault.html_body is not None:
            return fault.status or 200, fault.html_body or b""
        if (
            self.http_server.token is not None
            and self.headers.get("Authorization") != f"Bearer {self.http_server.token}"
        ):
            return 401, b""
        if self.command in self.http_server.rejected_methods or (
            self.command in ("PUT", "DELETE") and not self.http_server.writable
        ):
            return 405, b""
        return None

    def _target_path(self) -> Path:
        """Return the requested path; `..` cannot leave the folder."""
        parts = [part for part in unquote(urlsplit(self.path).path).split("/") if part not in ("", ".", "..")]
        return self.http_server.folder.joinpath(*parts)

    def _respond(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        if self.command == "PUT" and not body:
            self.close_connection = True  # the request body was not read
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle_put(self) -> None:
        path, remaining = self._target_path(), int(self.headers.get("Content-Length") or 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}.new")
        with open(temporary, "wb") as file:
            while remaining:
                block = self.rfile.read(min(_BLOCK_BYTES, remaining))
                if not block:
                    temporary.unlink()
                    return
                file.write(block)
                remaining -= len(block)
        temporary.replace(path)
        self._respond(201, self.http_server.upload_answer.encode(), {"Content-Type": "text/plain"})

    def _handle_delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._target_path().unlink()
            return self._respond(204)
        return self._respond(404)

    def _handle_get(self, fault: ResponseFault) -> None:
        try:
            with open(self._target_path(), "rb") as file:
                self._send_file(file, fault)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._respond(404, b"404 page not found\n")

    def _send_file(self, file: BinaryIO, fault: ResponseFault) -> None:
        file_status = os.fstat(file.fileno())
        size, etag = file_status.st_size, f'"{file_status.st_mtime_ns:x}-{file_status.st_size:x}"'
        match = None if fault.ignore_range else _RANGE_HEADER.match(self.headers.get("Range") or "")
        start = int(match.group(1)) if match else 0
        stop = min(size, int(match.group(2)) + 1) if match and match.group(2) else size
        if match and start >= stop:  # like nginx, also if the last byte is before the first
            return self._respond(416, b"", {"Content-Range": f"bytes */{size}", "ETag": etag})
        length = stop - start if fault.truncate_to_bytes is None else min(fault.truncate_to_bytes, stop - start)
        self._send_head(206 if match else 200, f"bytes {start}-{stop - 1}/{size}", length, etag, fault)
        if self.command == "GET":
            file.seek(start)
            self._send_body(_read_blocks(file, length), fault)
        return None

    def _send_head(self, status: int, content_range: str, length: int, etag: str, fault: ResponseFault) -> None:
        self.send_response(status)
        headers = {"Content-Type": "application/octet-stream", "ETag": etag, "Accept-Ranges": "bytes"}
        if fault.ignore_range:
            del headers["Accept-Ranges"]
        if status == 206:
            headers["Content-Range"] = content_range
        if fault.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif not fault.omit_length:
            headers["Content-Length"] = str(length)
        for name, value in {**headers, **self.http_server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection |= fault.omit_length or fault.close_after_bytes is not None

    def _send_body(self, blocks: Iterator[bytes], fault: ResponseFault) -> None:
        sent = 0
        for block in blocks:
            for chunk in _split_at_faults(block, sent, fault):
                if fault.stall_after_bytes == sent:
                    self.http_server.wait_in_stall()
                if fault.close_after_bytes == sent:
                    return
                self._send_chunk(_corrupt(chunk, sent, fault), fault)
                sent += len(chunk)
        if fault.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, chunk: bytes, fault: ResponseFault) -> None:
        self.http_server.count_sent_bytes(len(chunk))  # before sending: the test may read the count at once
        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if fault.chunked else chunk)
        if self.http_server.bytes_per_s:
            time.sleep(len(chunk) / self.http_server.bytes_per_s)


def _read_blocks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length:
        block = file.read(min(_BLOCK_BYTES, length))
        if not block:
            return
        length -= len(block)
        yield block


def _split_at_faults(block: bytes, offset: int, fault: ResponseFault) -> Iterator[bytes]:
    """Split a block at the offsets of faults."""
    offsets = (at - offset for at in (fault.stall_after_bytes, fault.close_after_bytes) if at is not None)
    edges = [0, *sorted({at for at in offsets if 0 < at < len(block)}), len(block)]
    for begin, end in ((edges[i], edges[i + 1]) for i in range(len(edges) - 1)):
        yield block[begin:end]


def _corrupt(chunk: bytes, offset: int, fault: ResponseFault) -> bytes:
    at = -1 if fault.corrupt_offset is None else fault.corrupt_offset - offset
    return chunk[:at] + bytes([chunk[at] ^ 0xFF]) + chunk[at + 1 :] if 0 <= at < len(chunk) else chunk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.http_server", description="Serve a folder over HTTP.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-env", help="environment variable with the bearer token that clients must send")
    parser.add_argument("--writable", action="store_true", help="allow PUT and DELETE")
    parser.add_argument("--bytes-per-s", type=float, help="limit the rate of each response")
    args = parser.parse_args()
    token = os.environ[args.token_env] if args.token_env else None
    server = HttpServer(
        args.folder,
        host=args.host,
        port=args.port,
        token=token,
        writable=args.writable,
        bytes_per_s=args.bytes_per_s,
    )
    print(server.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
