"""The command lines of packtrain and its peers, each as a person who knows the program would write it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness import PROJECT
from testbed import competitors

FSSPEC = "import fsspec, sys; fsspec.filesystem('http').get_file(*sys.argv[1:])"


@dataclass(frozen=True)
class Order:
    """One file from one or several addresses to a place."""

    urls: tuple[str, ...]
    out: Path
    sha256: str | None = None
    checksums: Path | None = None
    ca: Path | None = None

    @property
    def url(self) -> str:
        return self.urls[0]


Command = Callable[[Order], list[object]]


def curl(order: Order) -> list[object]:
    return [competitors.program("curl"), "-sSf", *_if(order.ca, "--cacert"), "-L", "-o", order.out, order.url]


def curl_and_sha256sum(order: Order) -> list[object]:
    check = f"echo {order.sha256}  {shlex.quote(str(order.out))} | sha256sum --check --quiet"
    return ["sh", "-c", f"{shlex.join(map(str, curl(order)))} && {check}"]


def wget(order: Order) -> list[object]:
    return [competitors.program("wget"), "-q", *_if(order.ca, "--ca-certificate"), "-O", order.out, order.url]


def aria2c(connections: int) -> Command:
    def command(order: Order) -> list[object]:
        many = [f"-x{connections}", f"-s{connections}", "-k1M", "--file-allocation=none", "-q", "--no-conf"]
        digest = [f"--checksum=sha-256={order.sha256}"] if order.sha256 else []
        where = ["-d", order.out.parent, "-o", order.out.name]
        return [competitors.program("aria2c"), *many, *digest, *_if(order.ca, "--ca-certificate"), *where, *order.urls]

    return command


def rclone(streams: int, chunk: str = "64M") -> Command:
    """`chunk` is rclone's own default; a file of few chunks leaves most of many streams idle."""

    def command(order: Order) -> list[object]:
        at = urlsplit(order.url)
        many = ["--multi-thread-streams", streams, "--multi-thread-chunk-size", chunk, "--multi-thread-cutoff", "1M"]
        where = ["--http-url", f"{at.scheme}://{at.netloc}", f":http:{at.path.lstrip('/')}", order.out]
        return [competitors.program("rclone"), "copyto", "--config", "", *many, *_if(order.ca, "--ca-cert"), *where]

    return command


def fsspec(order: Order) -> list[object]:
    return ["env", f"PYTHONPATH={competitors.wheels()}", sys.executable, "-c", FSSPEC, order.url, order.out]


def packtrain_get(order: Order) -> list[object]:
    """As a person calls it."""
    mirrors = [word for url in order.urls[1:] for word in ("--mirror", url)]
    known = [*_if(order.sha256, "--sha256"), *_if(order.checksums, "--checksums")]
    return [Path(sys.executable).with_name("packtrain"), "get", order.url, *mirrors, *known, "-o", order.out]


def packtrain_agent(order: Order) -> list[object]:
    """As the agent on a worker fetches: the engine alone, in a bare interpreter."""
    known = [*_if(order.sha256, "--sha256"), *_if(order.checksums, "--checksums")]
    return [*_bare(), *order.urls, *known, "-o", order.out]


def packtrain_unpack(order: Order) -> list[object]:
    return [*_bare(), *order.urls, "--unpack", "-o", order.out]


def curl_and_tar(order: Order) -> list[object]:
    """Download, unpack, unpack each class into a folder of its name."""
    script = """
set -e; mkdir "$2"; cd "$2"
"$0" -sSf -o all.tar "$1"; tar xf all.tar; rm all.tar
for each in *.tar; do mkdir "${each%.tar}"; tar xf "$each" -C "${each%.tar}"; rm "$each"; done
"""
    return ["sh", "-c", script, competitors.program("curl"), order.url, order.out]


PACKTRAIN: Mapping[str, Command] = {"user": packtrain_get, "agent": packtrain_agent}


def environment(ca: Path | None) -> dict[str, str]:
    """For those that have no option for a CA."""
    return {"SSL_CERT_FILE": str(ca)} if ca else {}


def _if(value: object, option: str) -> Sequence[object]:
    return [option, value] if value else []


def _bare() -> list[object]:
    return [sys.executable, "-I", "-S", PROJECT / "bench/harness/as_agent.py"]
