"""The federation of the replay: a director, four caches per site, an origin, and an outside host with the weights.

Clients are identified by the source address of their connections (see `testbed.site_addresses`), as by a real director.
All connections of a node share its link. A cache that stalls for a node begins its responses and then sends nothing,
until the schedule lets it continue.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from harness.week.fault_schedule import CACHES_PER_SITE, ReplayNode, ReplayWeek
from testbed.federation import CertificateAuthority
from testbed.ports import reserve_ports

DATASET_PATH = "/imagenet/ILSVRC2012_img_train.tar"
WEIGHTS_PATH = "/resnet50.pth"
OUTSIDE_ADDRESS, ORIGIN_ADDRESS = "127.79.0.1", "127.78.99.1"
_NAMESPACE = "/imagenet"
_DISCOVERY = "/.well-known/pelican-configuration"
_DIRECTOR_API = "/api/v1.0/director/"
_CHUNK_BYTES = 1 << 15
_BYTES_BEFORE_STALL = 1 << 16  # bytes of a response before it stalls
_POLL_INTERVAL_S = 0.2
_RANGE_HEADER = re.compile(r"bytes=(\d+)-(\d*)$")
_DAMAGED_BYTES = 1 << 16  # at the beginning of the file
_WEIGHTS_DATA = b"weights" * 10_000

Headers = Mapping[str, str]


class NodeRateLimiter:
    """Limits the total rate of one node's connections, in order of arrival."""

    def __init__(self, rate: float) -> None:
        self.bytes_per_s, self._available_at = rate, 0.0

    async def wait_for(self, n_bytes: int) -> None:
        """Sleep until `n_bytes` may have been sent."""
        now = time.monotonic()
        self._available_at = max(self._available_at, now) + n_bytes / self.bytes_per_s
        await asyncio.sleep(self._available_at - now)


class ReplayFederation:
    """`with ReplayFederation(folder, week, data, node_by_address) as f:` … `f.start_week(time)` for each arm."""

    def __init__(self, folder: Path, week: ReplayWeek, data: bytes, node_by_address: Mapping[str, int]) -> None:
        self.week, self.data = week, data
        self._node_by_address = node_by_address
        self._authority = CertificateAuthority(folder)
        self.ca_file = self._authority.ca
        self.ports = reserve_ports(2)
        self._director_port, self._port = self.ports
        self.host = f"localhost:{self._director_port}"
        self.dataset_url = f"pelican://{self.host}{DATASET_PATH}"
        self.weights_url = f"http://{OUTSIDE_ADDRESS}:{self._port}{WEIGHTS_PATH}"
        self._sites = sorted({node.site for node in week.nodes})
        self._rate_limiters = [NodeRateLimiter(len(data) / node.transfer_s) for node in week.nodes]
        self._md5_base64 = base64.b64encode(hashlib.md5(data).digest()).decode()
        self._started_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_servers, daemon=True)
        self._ready = threading.Event()
        self.bytes_by_server: dict[str, int] = {}  # bytes of the dataset by server address

    def __enter__(self) -> ReplayFederation:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        """Cancel all sessions, then stop the loop."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.1, self._loop.stop)

    def start_week(self, started_at: float) -> None:
        """Start the schedule at this Unix time and reset the byte counts."""
        self._started_at, self.bytes_by_server = started_at, {}

    @property
    def elapsed_s(self) -> float:
        return time.time() - self._started_at

    def _run_servers(self) -> None:
        asyncio.set_event_loop(self._loop)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self._authority.cert_and_key)
        numbers = range(1, CACHES_PER_SITE + 1)
        server_addresses = [
            OUTSIDE_ADDRESS,
            ORIGIN_ADDRESS,
            *(f"127.78.{site}.{n}" for site in range(len(self._sites)) for n in numbers),
        ]
        start = self._loop.run_until_complete
        start(asyncio.start_server(self._handle_connection, "127.0.0.1", self._director_port, ssl=tls, backlog=200))
        start(asyncio.start_server(self._handle_connection, server_addresses, self._port, backlog=200))
        self._ready.set()
        self._loop.run_forever()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = self._node_by_address.get(writer.get_extra_info("peername")[0])
        server = writer.get_extra_info("sockname")[0]
        session = _ClientSession(self, reader, writer, server, None if peer is None else self.week.nodes[peer])
        try:
            while await session.handle_request():
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # clients disconnect when they give up on a stalled cache
        finally:
            writer.close()

    def cache_urls(self, node: ReplayNode | None) -> list[str]:
        """Return the URLs of caches, nearest first; clients outside of all sites get the origin."""
        if node is None:
            return [f"http://{ORIGIN_ADDRESS}:{self._port}"]
        site = self._sites.index(node.site)
        return [
            f"http://127.78.{site}.{(node.number + n) % CACHES_PER_SITE + 1}:{self._port}"
            for n in range(CACHES_PER_SITE)
        ]

    @property
    def origin_url(self) -> str:
        return f"http://{ORIGIN_ADDRESS}:{self._port}"

    def is_director_down(self) -> bool:
        """Return True during an outage of the director."""
        return any(start <= self.elapsed_s < end for start, end in self.week.director_outages)

    def is_stalled(self, node: ReplayNode, server: str) -> bool:
        """Return True if this cache stalls for this node now."""
        return server != ORIGIN_ADDRESS and self.elapsed_s < node.cache_stalls_until[self._cache_rank(node, server)]

    def content_for(self, node: ReplayNode | None, server: str) -> bytes:
        """Return the dataset as a server has it for a node; its nearest cache may be damaged."""
        if node is None or not node.has_damaged_cache or server == ORIGIN_ADDRESS or self._cache_rank(node, server):
            return self.data
        return bytes(_DAMAGED_BYTES) + self.data[_DAMAGED_BYTES:]

    def digest_header(self) -> str:
        return f"md5={self._md5_base64}"

    def rate_limiter(self, node: ReplayNode) -> NodeRateLimiter:
        return self._rate_limiters[node.number]

    def _cache_rank(self, node: ReplayNode, server: str) -> int:
        return (int(server.rpartition(".")[2]) - 1 - node.number) % CACHES_PER_SITE


class _ClientSession:
    """Handles the requests on one connection."""

    def __init__(
        self,
        federation: ReplayFederation,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: str,
        node: ReplayNode | None,
    ) -> None:
        self._federation, self._reader, self._writer = federation, reader, writer
        self._server, self._node = server, node

    async def handle_request(self) -> bool:
        """Handle one request. Return False if the connection is closed after it."""
        first = (await self._reader.readline()).decode("latin-1").split()
        if len(first) < 3:
            return False
        lines = (await self._reader.readuntil(b"\r\n\r\n") if await self._has_headers() else b"").decode("latin-1")
        pairs = (line.partition(":") for line in (self._first_header_line + lines).split("\r\n"))
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs if name}
        await self._dispatch(first[0], first[1], headers)
        return headers.get("connection", "").lower() != "close"

    async def _has_headers(self) -> bool:
        self._first_header_line = (await self._reader.readline()).decode("latin-1")
        return self._first_header_line not in ("\r\n", "\n", "")

    async def _dispatch(self, method: str, target: str, headers: Headers) -> None:
        path = urlsplit(target).path
        if self._server == "127.0.0.1":
            await self._handle_director(method, path, urlsplit(target).query)
        elif path == WEIGHTS_PATH:
            await self._respond(method, 200, {}, _WEIGHTS_DATA)
        elif path == DATASET_PATH:
            await self._handle_dataset(method, headers)
        else:
            await self._respond(method, 404, {}, b"404 page not found\n")

    async def _handle_director(self, method: str, path: str, query: str) -> None:
        federation = self._federation
        if path == _DISCOVERY:
            document = json.dumps({"director_endpoint": f"https://{federation.host}"}).encode()
            await self._respond(method, 200, {"Server": "pelican/7.18.0", "Content-Type": "application/json"}, document)
            return
        if federation.is_director_down():
            await self._respond(method, 404, {"Content-Type": "text/plain"}, b"404 page not found\n")
            return
        kind = path[len(_DIRECTOR_API) :].partition("/")[0] if path.startswith(_DIRECTOR_API) else "object"
        direct = kind == "origin" or "directread" in query or method in ("PUT", "PROPFIND")
        servers = [federation.origin_url] if direct else federation.cache_urls(self._node)
        replicas = [server + DATASET_PATH for server in servers]
        links = ", ".join(f'<{url}>; rel="duplicate"; pri={n}; depth=1' for n, url in enumerate(replicas, start=1))
        namespace = f"namespace={_NAMESPACE}, require-token=false, collections-url={federation.origin_url}"
        headers = {"Location": replicas[0], "Link": links, "X-Pelican-Namespace": namespace, "Server": "pelican/7.18.0"}
        await self._respond(method, 307, headers)

    async def _handle_dataset(self, method: str, headers: Headers) -> None:
        content = self._federation.content_for(self._node, self._server)
        match = _RANGE_HEADER.match(headers.get("range", ""))
        start = int(match[1]) if match else 0
        stop = min(len(content), int(match[2]) + 1) if match and match[2] else len(content)
        response_headers = {"Content-Type": "application/x-tar", "ETag": '"imagenet"', "Accept-Ranges": "bytes"}
        if match:
            response_headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        if "want-digest" in headers:
            response_headers["Digest"] = self._federation.digest_header()
        self._send_head(206 if match else 200, response_headers, stop - start)
        if method == "GET":
            await self._send_body(memoryview(content)[start:stop])
        await self._writer.drain()

    async def _send_body(self, body: memoryview) -> None:
        federation, node, sent = self._federation, self._node, 0
        while sent < len(body):
            while node is not None and sent >= _BYTES_BEFORE_STALL and federation.is_stalled(node, self._server):
                await asyncio.sleep(_POLL_INTERVAL_S)
            chunk = bytes(body[sent : sent + _CHUNK_BYTES])
            if node is not None:
                await federation.rate_limiter(node).wait_for(len(chunk))
            self._writer.write(chunk)
            await self._writer.drain()
            sent += len(chunk)
            total = federation.bytes_by_server.get(self._server, 0) + len(chunk)
            federation.bytes_by_server[self._server] = total

    async def _respond(self, method: str, status: int, headers: Headers, body: bytes = b"") -> None:
        self._send_head(status, headers, len(body))
        if method != "HEAD":
            self._writer.write(body)
        await self._writer.drain()

    def _send_head(self, status: int, headers: Headers, length: int) -> None:
        lines = [f"HTTP/1.1 {status} Replayed", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write(("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode("latin-1"))
