"""Command lines of packtrain and other download programs, as an experienced user would write them."""

from __future__ import annotations

import argparse
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
    """One file to download: its URLs, the target path, and how to verify it."""

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
        parallel = [f"-x{n_connections}", f"-s{n_connections}", "-k1M", "--file-allocation=none", "-q", "--no-conf"]
        digest = [f"--checksum=sha-256={order.sha256}"] if order.sha256 else []
        target = ["-d", order.target.parent, "-o", order.target.name]
        return [
            competitors.program_path("aria2c"),
            *parallel,
            *digest,
            *_optional_flag(order.ca_file, "--ca-certificate"),
            *target,
            *order.urls,
        ]

    return command


def rclone(n_streams: int, chunk_size: str = "64M") -> Command:
    """Return the command; the default chunk size is rclone's. With few chunks, most of many streams are idle."""

    def command(order: DownloadOrder) -> list[object]:
        url = urlsplit(order.url)
        parallel = [
            "--multi-thread-streams",
            n_streams,
            "--multi-thread-chunk-size",
            chunk_size,
            "--multi-thread-cutoff",
            "1M",
        ]
        locations = ["--http-url", f"{url.scheme}://{url.netloc}", f":http:{url.path.lstrip('/')}", order.target]
        return [
            competitors.program_path("rclone"),
            "copyto",
            "--config",
            "",
            *parallel,
            *_optional_flag(order.ca_file, "--ca-cert"),
            *locations,
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
    """Return `packtrain get`."""
    mirrors = [argument for url in order.urls[1:] for argument in ("--mirror", url)]
    digests = [*_optional_flag(order.sha256, "--sha256"), *_optional_flag(order.checksums, "--checksums")]
    return [Path(sys.executable).with_name("packtrain"), "get", order.url, *mirrors, *digests, "-o", order.target]


def packtrain_agent(order: DownloadOrder) -> list[object]:
    """Return a fetch like that of the agent: the engine alone, in a bare interpreter."""
    digests = [*_optional_flag(order.sha256, "--sha256"), *_optional_flag(order.checksums, "--checksums")]
    return [*_agent_prefix(), *order.urls, *digests, "-o", order.target]


def packtrain_unpack(order: DownloadOrder) -> list[object]:
    return [*_agent_prefix(), *order.urls, "--unpack", "-o", order.target]


def curl_and_tar(order: DownloadOrder) -> list[object]:
    """Return a script that downloads and unpacks a tar, and unpacks each class to a folder with its name."""
    script = """
set -e; mkdir "$2"; cd "$2"
"$0" -sSf -o all.tar "$1"; tar xf all.tar; rm all.tar
for class in *.tar; do mkdir "${class%.tar}"; tar xf "$class" -C "${class%.tar}"; rm "$class"; done
"""
    return ["sh", "-c", script, competitors.program_path("curl"), order.url, order.target]


PACKTRAIN_COMMANDS: Mapping[str, Command] = {"user": packtrain_get, "agent": packtrain_agent}


def add_client_option(parser: argparse.ArgumentParser) -> None:
    """Add --client, which chooses one of PACKTRAIN_COMMANDS."""
    help_text = "user: `packtrain get`; agent: the engine alone, as on a worker"
    parser.add_argument("--client", choices=PACKTRAIN_COMMANDS, default="user", help=help_text)


def ca_environment(ca_file: Path | None) -> dict[str, str]:
    """Return the environment for programs without an option for a CA."""
    return {"SSL_CERT_FILE": str(ca_file)} if ca_file else {}


def _optional_flag(value: object, option: str) -> Sequence[object]:
    return [option, value] if value else []


def _agent_prefix() -> list[object]:
    return [sys.executable, "-I", "-S", PROJECT_ROOT / "bench/harness/agent_fetch.py"]
