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

from harness.week.fault_schedule import CACHES, Machine, Week
from testbed.federation import Authority
from testbed.ports import free_ports

DATA = "/imagenet/ILSVRC2012_img_train.tar"
WEIGHTS = "/resnet50.pth"
OUTSIDE, ORIGIN = "127.79.0.1", "127.78.99.1"
_NAMESPACE = "/imagenet"
_DISCOVERY = "/.well-known/pelican-configuration"
_API = "/api/v1.0/director/"
_PIECE = 1 << 15
_BEGINNING = 1 << 16  # what comes of an answer before it stalls
_LOOK_EVERY_S = 0.2
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
_DAMAGED = 1 << 16  # bytes of it, from the beginning
_MODEL = b"weights" * 10_000

Headers = Mapping[str, str]


class Line:
    """So many bytes a second for one machine, in the order in which its connections come."""

    def __init__(self, rate: float) -> None:
        self.rate, self._free = rate, 0.0

    async def carry(self, count: int) -> None:
        now = time.monotonic()
        self._free = max(self._free, now) + count / self.rate
        await asyncio.sleep(self._free - now)


class Caches:
    """`with Caches(folder, week, data, machine_of) as f:` … `f.begin(moment)` for each arm."""

    def __init__(self, folder: Path, week: Week, data: bytes, machines: Mapping[str, int]) -> None:
        self.week, self.data = week, data
        self._machines = machines  # by the address that they have
        self._authority = Authority(folder)
        self.ca = self._authority.ca
        self.ports = free_ports(2)
        self._director, self._port = self.ports
        self.host = f"localhost:{self._director}"
        self.url = f"pelican://{self.host}{DATA}"
        self.weights = f"http://{OUTSIDE}:{self._port}{WEIGHTS}"
        self._sites = sorted({machine.site for machine in week.machines})
        self._lines = [Line(len(data) / machine.transfer_s) for machine in week.machines]
        self._digest = base64.b64encode(hashlib.md5(data).digest()).decode()
        self._began = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._up = threading.Event()
        self.sent: dict[str, int] = {}  # bytes of the data set by server

    def __enter__(self) -> Caches:
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        """The loop's last rounds are for conversations that are cut off."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.1, self._loop.stop)

    def begin(self, moment: float) -> None:
        """The week begins at this time, since 1970."""
        self._began, self.sent = moment, {}

    @property
    def now(self) -> float:
        return time.time() - self._began

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self._authority.pair)
        numbers = range(1, CACHES + 1)
        places = [OUTSIDE, ORIGIN, *(f"127.78.{site}.{n}" for site in range(len(self._sites)) for n in numbers)]
        begin = self._loop.run_until_complete
        begin(asyncio.start_server(self._accept, "127.0.0.1", self._director, ssl=tls, backlog=200))
        begin(asyncio.start_server(self._accept, places, self._port, backlog=200))
        self._up.set()
        self._loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = self._machines.get(writer.get_extra_info("peername")[0])
        server = writer.get_extra_info("sockname")[0]
        conversation = _Conversation(self, reader, writer, server, None if peer is None else self.week.machines[peer])
        try:
            while await conversation.answer():
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # clients that leave are what this is about
        finally:
            writer.close()

    # What a conversation asks

    def directions(self, machine: Machine | None) -> list[str]:
        """Addresses of servers, the nearest first. Who is at no site is near the origin."""
        if machine is None:
            return [f"http://{ORIGIN}:{self._port}"]
        site = self._sites.index(machine.site)
        return [f"http://127.78.{site}.{(machine.number + n) % CACHES + 1}:{self._port}" for n in range(CACHES)]

    @property
    def origin(self) -> str:
        return f"http://{ORIGIN}:{self._port}"

    def is_away(self) -> bool:
        return any(begins <= self.now < ends for begins, ends in self.week.away)

    def stalls(self, machine: Machine, server: str) -> bool:
        """Whether this cache has nothing for this machine now."""
        return server != ORIGIN and self.now < machine.stalls_until[self._rank(machine, server)]

    def content(self, machine: Machine | None, server: str) -> bytes:
        if machine is None or not machine.damaged or server == ORIGIN or self._rank(machine, server):
            return self.data
        return bytes(_DAMAGED) + self.data[_DAMAGED:]

    def digest(self) -> str:
        return f"md5={self._digest}"

    def line(self, machine: Machine) -> Line:
        return self._lines[machine.number]

    def _rank(self, machine: Machine, server: str) -> int:
        return (int(server.rpartition(".")[2]) - 1 - machine.number) % CACHES


class _Conversation:
    """One connection."""

    def __init__(
        self,
        caches: Caches,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: str,
        machine: Machine | None,
    ) -> None:
        self._of, self._reader, self._writer = caches, reader, writer
        self._server, self._machine = server, machine

    async def answer(self) -> bool:
        """One request; whether another may follow."""
        first = (await self._reader.readline()).decode("latin-1").split()
        if len(first) < 3:
            return False
        lines = (await self._reader.readuntil(b"\r\n\r\n") if await self._has_fields() else b"").decode("latin-1")
        pairs = (line.partition(":") for line in (self._first_field + lines).split("\r\n"))
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs if name}
        await self._handle(first[0], first[1], headers)
        return headers.get("connection", "").lower() != "close"

    async def _has_fields(self) -> bool:
        self._first_field = (await self._reader.readline()).decode("latin-1")
        return self._first_field not in ("\r\n", "\n", "")

    async def _handle(self, method: str, target: str, headers: Headers) -> None:
        path = urlsplit(target).path
        if self._server == "127.0.0.1":
            await self._direct(method, path, urlsplit(target).query)
        elif path == WEIGHTS:
            await self._say(method, 200, {}, _MODEL)
        elif path == DATA:
            await self._give(method, headers)
        else:
            await self._say(method, 404, {}, b"404 page not found\n")

    async def _direct(self, method: str, path: str, query: str) -> None:
        of = self._of
        if path == _DISCOVERY:
            here = json.dumps({"director_endpoint": f"https://{of.host}"}).encode()
            await self._say(method, 200, {"Server": "pelican/7.18.0", "Content-Type": "application/json"}, here)
            return
        if of.is_away():
            await self._say(method, 404, {"Content-Type": "text/plain"}, b"404 page not found\n")
            return
        kind = path[len(_API) :].partition("/")[0] if path.startswith(_API) else "object"
        direct = kind == "origin" or "directread" in query or method in ("PUT", "PROPFIND")
        places = [place + DATA for place in ([of.origin] if direct else of.directions(self._machine))]
        links = ", ".join(f'<{place}>; rel="duplicate"; pri={n}; depth=1' for n, place in enumerate(places, start=1))
        about = f"namespace={_NAMESPACE}, require-token=false, collections-url={of.origin}"
        fields = {"Location": places[0], "Link": links, "X-Pelican-Namespace": about, "Server": "pelican/7.18.0"}
        await self._say(method, 307, fields)

    async def _give(self, method: str, headers: Headers) -> None:
        content = self._of.content(self._machine, self._server)
        asked = _RANGE.match(headers.get("range", ""))
        start = int(asked[1]) if asked else 0
        stop = min(len(content), int(asked[2]) + 1) if asked and asked[2] else len(content)
        fields = {"Content-Type": "application/x-tar", "ETag": '"imagenet"', "Accept-Ranges": "bytes"}
        if asked:
            fields["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        if "want-digest" in headers:
            fields["Digest"] = self._of.digest()
        self._head(206 if asked else 200, fields, stop - start)
        if method == "GET":
            await self._pour(memoryview(content)[start:stop])
        await self._writer.drain()

    async def _pour(self, body: memoryview) -> None:
        of, machine, done = self._of, self._machine, 0
        while done < len(body):
            while machine is not None and done >= _BEGINNING and of.stalls(machine, self._server):
                await asyncio.sleep(_LOOK_EVERY_S)
            piece = bytes(body[done : done + _PIECE])
            if machine is not None:
                await of.line(machine).carry(len(piece))
            self._writer.write(piece)
            await self._writer.drain()
            done += len(piece)
            of.sent[self._server] = of.sent.get(self._server, 0) + len(piece)

    async def _say(self, method: str, status: int, fields: Headers, body: bytes = b"") -> None:
        self._head(status, fields, len(body))
        if method != "HEAD":
            self._writer.write(body)
        await self._writer.drain()

    def _head(self, status: int, fields: Headers, length: int) -> None:
        lines = [f"HTTP/1.1 {status} Replayed", *(f"{name}: {value}" for name, value in fields.items())]
        self._writer.write(("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode("latin-1"))
