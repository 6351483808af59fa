"""The command lines of packtrain and its peers, each as a person who knows the program would write it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness import PROJECT_ROOT
from testbed import competitors

FSSPEC_SCRIPT = "import fsspec, sys; fsspec.filesystem('http').get_file(*sys.argv[1:])"


@dataclass(frozen=True)
class DownloadOrder:
    """One file from one or several addresses to a place."""

    urls: tuple[str, ...]
    target: Path
    sha256: str | None = None
    checksums: Path | None = None
    ca_file: Path | None = None

    @property
    def url(self) -> str:
        return self.urls[0]


Command = Callable[[DownloadOrder], list[object]]


def curl(order: DownloadOrder) -> list[object]:
    return [
        competitors.program_path("curl"),
        "-sSf",
        *_optional_flag(order.ca_file, "--cacert"),
        "-L",
        "-o",
        order.target,
        order.url,
    ]


def curl_and_sha256sum(order: DownloadOrder) -> list[object]:
    check = f"echo {order.sha256}  {shlex.quote(str(order.target))} | sha256sum --check --quiet"
    return ["sh", "-c", f"{shlex.join(map(str, curl(order)))} && {check}"]


def wget(order: DownloadOrder) -> list[object]:
    return [
        competitors.program_path("wget"),
        "-q",
        *_optional_flag(order.ca_file, "--ca-certificate"),
        "-O",
        order.target,
        order.url,
    ]


def aria2c(n_connections: int) -> Command:
    def command(order: DownloadOrder) -> list[object]:
        many = [f"-x{n_connections}", f"-s{n_connections}", "-k1M", "--file-allocation=none", "-q", "--no-conf"]
        digest = [f"--checksum=sha-256={order.sha256}"] if order.sha256 else []
        where = ["-d", order.target.parent, "-o", order.target.name]
        return [
            competitors.program_path("aria2c"),
            *many,
            *digest,
            *_optional_flag(order.ca_file, "--ca-certificate"),
            *where,
            *order.urls,
        ]

    return command


def rclone(n_streams: int, chunk_size: str = "64M") -> Command:
    """`chunk` is rclone's own default; a file of few chunks leaves most of many streams idle."""

    def command(order: DownloadOrder) -> list[object]:
        at = urlsplit(order.url)
        many = [
            "--multi-thread-streams",
            n_streams,
            "--multi-thread-chunk-size",
            chunk_size,
            "--multi-thread-cutoff",
            "1M",
        ]
        where = ["--http-url", f"{at.scheme}://{at.netloc}", f":http:{at.path.lstrip('/')}", order.target]
        return [
            competitors.program_path("rclone"),
            "copyto",
            "--config",
            "",
            *many,
            *_optional_flag(order.ca_file, "--ca-cert"),
            *where,
        ]

    return command


def fsspec(order: DownloadOrder) -> list[object]:
    return [
        "env",
        f"PYTHONPATH={competitors.wheels_dir()}",
        sys.executable,
        "-c",
        FSSPEC_SCRIPT,
        order.url,
        order.target,
    ]


def packtrain_get(order: DownloadOrder) -> list[object]:
    """As a person calls it."""
    mirrors = [word for url in order.urls[1:] for word in ("--mirror", url)]
    known = [*_optional_flag(order.sha256, "--sha256"), *_optional_flag(order.checksums, "--checksums")]
    return [Path(sys.executable).with_name("packtrain"), "get", order.url, *mirrors, *known, "-o", order.target]


def packtrain_agent(order: DownloadOrder) -> list[object]:
    """As the agent on a worker fetches: the engine alone, in a bare interpreter."""
    known = [*_optional_flag(order.sha256, "--sha256"), *_optional_flag(order.checksums, "--checksums")]
    return [*_agent_prefix(), *order.urls, *known, "-o", order.target]


def packtrain_unpack(order: DownloadOrder) -> list[object]:
    return [*_agent_prefix(), *order.urls, "--unpack", "-o", order.target]


def curl_and_tar(order: DownloadOrder) -> list[object]:
    """Download, unpack, unpack each class into a folder of its name."""
    script = """
set -e; mkdir "$2"; cd "$2"
"$0" -sSf -o all.tar "$1"; tar xf all.tar; rm all.tar
for each in *.tar; do mkdir "${each%.tar}"; tar xf "$each" -C "${each%.tar}"; rm "$each"; done
"""
    return ["sh", "-c", script, competitors.program_path("curl"), order.url, order.target]


PACKTRAIN_COMMANDS: Mapping[str, Command] = {"user": packtrain_get, "agent": packtrain_agent}


def ca_environment(ca_file: Path | None) -> dict[str, str]:
    """For those that have no option for a CA."""
    return {"SSL_CERT_FILE": str(ca_file)} if ca_file else {}


def _optional_flag(value: object, option: str) -> Sequence[object]:
    return [option, value] if value else []


def _agent_prefix() -> list[object]:
    return [sys.executable, "-I", "-S", PROJECT_ROOT / "bench/harness/as_agent.py"]
