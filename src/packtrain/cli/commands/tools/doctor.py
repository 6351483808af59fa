"""packtrain doctor"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

from packtrain import __version__, formatting, services
from packtrain.cli.ui.output import json_option, say_next, show
from packtrain.errors import PacktrainError
from packtrain.store import store_path
from packtrain.store.location import file_system, is_network
from packtrain.transfer.bearer_tokens import ends_at, token_in

OK, WARN, BAD = "ok", "warning", "bad"
_MARKS = {OK: "[green]✓[/]", WARN: "[yellow]![/]", BAD: "[red]✗[/]"}
_LITTLE_DISK = 5e9
_TOKEN_FILES = ("BEARER_TOKEN_FILE", "TOKEN")


@dataclass(frozen=True)
class Finding:
    what: str
    status: str
    seen: str
    remedy: str = ""


@click.command(name="doctor")
@json_option
def command(as_json: bool) -> None:
    """Is this machine ready? Exit code 1 if something must be mended first."""
    findings = [finding for look in _LOOKS for finding in look()]
    show(as_json, [asdict(finding) for finding in findings], lambda out: _text(out, findings))
    if any(finding.status == BAD for finding in findings):
        raise click.exceptions.Exit(1)


def _text(out: Console, findings: list[Finding]) -> None:
    for finding in findings:
        remedy = f"  [dim]→ {finding.remedy}[/]" if finding.remedy else ""
        out.print(f" {_MARKS[finding.status]} {finding.what:<12} {finding.seen}{remedy}")
    say_next(("packtrain init cifar10-resnet", "a first workflow"))


def _versions() -> Iterator[Finding]:
    yield Finding("packtrain", OK, f"{__version__} on Python {platform.python_version()} ({sys.executable})")
    yield Finding("SQLite", OK, sqlite3.sqlite_version)


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(".").free
    little = free < _LITTLE_DISK
    remedy = "free some room, or run from another folder" if little else ""
    yield Finding("disk", WARN if little else OK, f"{formatting.size(free)} free in this folder", remedy)


def _folder() -> Iterator[Finding]:
    kind = file_system(Path.cwd())
    try:
        import fcntl

        with tempfile.NamedTemporaryFile(dir=".") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        yield Finding("folder", BAD, f"{kind}: {error}", "run from a folder that you can write and lock files in")
        return
    yield Finding("folder", OK, f"{kind or 'unknown file system'}, files can be written and locked")


def _store() -> Iterator[Finding]:
    path = store_path()
    kind = file_system(path.parent) if path.parent.exists() else ""
    try:
        runs = len(services.open_store().runs())
    except (PacktrainError, OSError, sqlite3.Error) as error:
        yield Finding("store", BAD, str(error), "set PACKTRAIN_STORE to a file that you can write")
        return
    slow = ", network file system: slower journal" if is_network(kind) else ""
    yield Finding("store", OK, f"{path}, {runs} runs{slow}")


def _engines() -> Iterator[Finding]:
    machine = services.engine_capabilities("local")
    gpus = f"{machine.gpus} GPUs" if machine.gpus else "no GPU"
    yield Finding("local", OK, f"{machine.cpus} CPUs, {formatting.size(machine.memory_mb * 2**20)}, {gpus}")
    if shutil.which("sbatch"):
        yield Finding("slurm", WARN, "sbatch is here", "this version cannot run on slurm yet")
    if machine.containers:
        yield Finding("containers", OK, f"Apptainer: {shutil.which('apptainer')}")
    else:
        yield Finding(
            "containers", WARN, "no Apptainer", "install it for steps with a `container`, or use --no-container"
        )


def _pool() -> Iterator[Finding]:
    """Only where there is one, or somebody says so."""
    if shutil.which("condor_submit") or os.environ.get("CONDOR_CONFIG"):
        yield from (Finding("htcondor", one.status, one.seen, one.remedy) for one in services.examine_pool())


def _training() -> Iterator[Finding]:
    python = shutil.which("python3")
    if python is None:
        yield Finding("python3", WARN, "not on PATH", "steps that call python3 will fail")
        return
    yield Finding("python3", OK, f"{python} (what steps get when they call python3)")


def _network() -> Iterator[Finding]:
    paths = ssl.get_default_verify_paths()
    bundle = paths.cafile or paths.capath
    yield (
        Finding("TLS", OK, f"certificates in {bundle}")
        if bundle
        else Finding("TLS", BAD, "no certificates", "install ca-certificates, or set SSL_CERT_FILE")
    )
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if proxy:
        yield Finding("proxy", OK, proxy.rpartition("@")[2])


def _tokens() -> Iterator[Finding]:
    """Where they are looked for, whether they are there, and whether they still count."""
    found = [_token(place, token) for place, token in _places()]
    yield from found or [Finding("tokens", OK, "none found (needed for protected data only)")]


def _places() -> Iterator[tuple[str, str | None]]:
    if os.environ.get("BEARER_TOKEN"):
        yield "$BEARER_TOKEN", os.environ["BEARER_TOKEN"].strip()
    for name in filter(os.environ.get, _TOKEN_FILES):
        yield f"{os.environ[name]} (${name})", token_in(Path(os.environ[name]))
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"bt_u{os.getuid()}"
    given = sorted(Path(os.environ["_CONDOR_CREDS"]).glob("*.use")) if os.environ.get("_CONDOR_CREDS") else []
    for path in (*([runtime] if runtime.exists() else []), *given):
        yield str(path), token_in(path)


def _token(place: str, token: str | None) -> Finding:
    if not token:
        return Finding("tokens", WARN, f"no token in {place}", "get one there, or unset what names it")
    end = ends_at(token)
    if end is not None and end < time.time():
        ago = formatting.duration(time.time() - end)
        return Finding("tokens", WARN, f"the token in {place} ran out {ago} ago", "get a new one")
    left = f", for {formatting.duration(end - time.time())} more" if end is not None else ""
    return Finding("tokens", OK, f"found in {place}{left}")


_LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _versions,
    _disk,
    _folder,
    _store,
    _engines,
    _pool,
    _training,
    _network,
    _tokens,
)
