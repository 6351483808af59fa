"""The federation of the week: a director, four caches for each site, an origin, and a host of the world with weights.

Who asks is told by the address that a connection comes from (see `testbed.addresses`), as a real director goes by it.
All bytes to one machine share its line, however many connections there are. A cache that stalls for a machine begins
its answers and falls silent, until fate lets it go on.
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
_BYTES_BEFORE_STALL = 1 << 16  # what comes of an answer before it stalls
_POLL_INTERVAL_S = 0.2
_RANGE_HEADER = re.compile(r"bytes=(\d+)-(\d*)$")
_DAMAGED_BYTES = 1 << 16  # bytes of it, from the beginning
_WEIGHTS_DATA = b"weights" * 10_000

Headers = Mapping[str, str]


class NodeRateLimiter:
    """So many bytes a second for one machine, in the order in which its connections come."""

    def __init__(self, rate: float) -> None:
        self.bytes_per_s, self._available_at = rate, 0.0

    async def wait_for(self, n_bytes: int) -> None:
        now = time.monotonic()
        self._available_at = max(self._available_at, now) + n_bytes / self.bytes_per_s
        await asyncio.sleep(self._available_at - now)


class ReplayFederation:
    """`with Caches(folder, week, data, machine_of) as f:` … `f.begin(moment)` for each arm."""

    def __init__(self, folder: Path, week: ReplayWeek, data: bytes, node_by_address: Mapping[str, int]) -> None:
        self.week, self.data = week, data
        self._node_by_address = node_by_address  # by the address that they have
        self._authority = CertificateAuthority(folder)
        self.ca_file = self._authority.ca
        self.ports = reserve_ports(2)
        self._director_port, self._port = self.ports
        self.host = f"localhost:{self._director_port}"
        self.dataset_url = f"pelican://{self.host}{DATASET_PATH}"
        self.weights_url = f"http://{OUTSIDE_ADDRESS}:{self._port}{WEIGHTS_PATH}"
        self._sites = sorted({machine.site for machine in week.nodes})
        self._rate_limiters = [NodeRateLimiter(len(data) / machine.transfer_s) for machine in week.nodes]
        self._md5_base64 = base64.b64encode(hashlib.md5(data).digest()).decode()
        self._started_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_servers, daemon=True)
        self._ready = threading.Event()
        self.bytes_by_server: dict[str, int] = {}  # bytes of the data set by server

    def __enter__(self) -> ReplayFederation:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        """The loop's last rounds are for conversations that are cut off."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.1, self._loop.stop)

    def start_week(self, started_at: float) -> None:
        """The week begins at this time, since 1970."""
        self._started_at, self.bytes_by_server = started_at, {}

    @property
    def elapsed_s(self) -> float:
        return time.time() - self._started_at

    def _run_servers(self) -> None:
        asyncio.set_event_loop(self._loop)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self._authority.cert_and_key)
        numbers = range(1, CACHES_PER_SITE + 1)
        places = [
            OUTSIDE_ADDRESS,
            ORIGIN_ADDRESS,
            *(f"127.78.{site}.{n}" for site in range(len(self._sites)) for n in numbers),
        ]
        begin = self._loop.run_until_complete
        begin(asyncio.start_server(self._handle_connection, "127.0.0.1", self._director_port, ssl=tls, backlog=200))
        begin(asyncio.start_server(self._handle_connection, places, self._port, backlog=200))
        self._ready.set()
        self._loop.run_forever()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = self._node_by_address.get(writer.get_extra_info("peername")[0])
        server = writer.get_extra_info("sockname")[0]
        conversation = _ClientSession(self, reader, writer, server, None if peer is None else self.week.nodes[peer])
        try:
            while await conversation.handle_request():
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # clients that leave are what this is about
        finally:
            writer.close()

    # What a conversation asks

    def cache_urls(self, node: ReplayNode | None) -> list[str]:
        """Addresses of servers, the nearest first. Who is at no site is near the origin."""
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
        return any(begins <= self.elapsed_s < ends for begins, ends in self.week.director_outages)

    def is_stalled(self, node: ReplayNode, server: str) -> bool:
        """Whether this cache has nothing for this machine now."""
        return server != ORIGIN_ADDRESS and self.elapsed_s < node.cache_stalls_until[self._cache_rank(node, server)]

    def content_for(self, node: ReplayNode | None, server: str) -> bytes:
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
    """One connection."""

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
        """One request; whether another may follow."""
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
        of = self._federation
        if path == _DISCOVERY:
            here = json.dumps({"director_endpoint": f"https://{of.host}"}).encode()
            await self._respond(method, 200, {"Server": "pelican/7.18.0", "Content-Type": "application/json"}, here)
            return
        if of.is_director_down():
            await self._respond(method, 404, {"Content-Type": "text/plain"}, b"404 page not found\n")
            return
        kind = path[len(_DIRECTOR_API) :].partition("/")[0] if path.startswith(_DIRECTOR_API) else "object"
        direct = kind == "origin" or "directread" in query or method in ("PUT", "PROPFIND")
        places = [place + DATASET_PATH for place in ([of.origin_url] if direct else of.cache_urls(self._node))]
        links = ", ".join(f'<{place}>; rel="duplicate"; pri={n}; depth=1' for n, place in enumerate(places, start=1))
        about = f"namespace={_NAMESPACE}, require-token=false, collections-url={of.origin_url}"
        fields = {"Location": places[0], "Link": links, "X-Pelican-Namespace": about, "Server": "pelican/7.18.0"}
        await self._respond(method, 307, fields)

    async def _handle_dataset(self, method: str, headers: Headers) -> None:
        content = self._federation.content_for(self._node, self._server)
        asked = _RANGE_HEADER.match(headers.get("range", ""))
        start = int(asked[1]) if asked else 0
        stop = min(len(content), int(asked[2]) + 1) if asked and asked[2] else len(content)
        fields = {"Content-Type": "application/x-tar", "ETag": '"imagenet"', "Accept-Ranges": "bytes"}
        if asked:
            fields["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        if "want-digest" in headers:
            fields["Digest"] = self._federation.digest_header()
        self._send_head(206 if asked else 200, fields, stop - start)
        if method == "GET":
            await self._send_body(memoryview(content)[start:stop])
        await self._writer.drain()

    async def _send_body(self, body: memoryview) -> None:
        of, machine, done = self._federation, self._node, 0
        while done < len(body):
            while machine is not None and done >= _BYTES_BEFORE_STALL and of.is_stalled(machine, self._server):
                await asyncio.sleep(_POLL_INTERVAL_S)
            piece = bytes(body[done : done + _CHUNK_BYTES])
            if machine is not None:
                await of.rate_limiter(machine).wait_for(len(piece))
            self._writer.write(piece)
            await self._writer.drain()
            done += len(piece)
            of.bytes_by_server[self._server] = of.bytes_by_server.get(self._server, 0) + len(piece)

    async def _respond(self, method: str, status: int, headers: Headers, body: bytes = b"") -> None:
        self._send_head(status, headers, len(body))
        if method != "HEAD":
            self._writer.write(body)
        await self._writer.drain()

    def _send_head(self, status: int, headers: Headers, length: int) -> None:
        lines = [f"HTTP/1.1 {status} Replayed", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write(("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode("latin-1"))
