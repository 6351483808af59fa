"""Check this machine: versions, disk, store, engines, network and tokens."""

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
from dataclasses import dataclass
from pathlib import Path

from packtrain import __version__, formatting, services
from packtrain.errors import PacktrainError
from packtrain.store import store_path
from packtrain.store.location import file_system_type, is_network_file_system
from packtrain.transfer.credentials import read_token, token_expires_at

OK, WARNING, ERROR = "ok", "warning", "error"
_MIN_FREE_DISK_BYTES = 5e9
_TOKEN_FILE_ENV_VARS = ("BEARER_TOKEN_FILE", "TOKEN")


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str  # what was checked, e.g. disk
    status: str  # ok, warning or error
    detail: str
    remedy: str = ""


def check_machine(*, with_node: bool = False) -> list[CheckResult]:
    """Check what packtrain needs on this machine.

    Args:
        with_node: Also check a node of the Slurm cluster, with a short srun.
    """
    return [*(result for check in _CHECKS for result in check()), *_check_slurm(with_node)]


def _check_versions() -> Iterator[CheckResult]:
    yield CheckResult("packtrain", OK, f"{__version__} on Python {platform.python_version()} ({sys.executable})")
    yield CheckResult("SQLite", OK, sqlite3.sqlite_version)


def _check_disk() -> Iterator[CheckResult]:
    free = shutil.disk_usage(".").free
    is_low = free < _MIN_FREE_DISK_BYTES
    remedy = "free disk space, or run from another folder" if is_low else ""
    yield CheckResult("disk", WARNING if is_low else OK, f"{formatting.format_size(free)} free in this folder", remedy)


def _check_folder() -> Iterator[CheckResult]:
    kind = file_system_type(Path.cwd())
    try:
        import fcntl

        with tempfile.NamedTemporaryFile(dir=".") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        yield CheckResult("folder", ERROR, f"{kind}: {error}", "run from a folder where you can write and lock files")
        return
    yield CheckResult("folder", OK, f"{kind or 'unknown file system'}, files can be written and locked")


def _check_store() -> Iterator[CheckResult]:
    path = store_path()
    kind = file_system_type(path.parent) if path.parent.exists() else ""
    try:
        runs = len(services.open_store().list_runs())
    except (PacktrainError, OSError, sqlite3.Error) as error:
        yield CheckResult("store", ERROR, str(error), "set PACKTRAIN_STORE to a file that you can write")
        return
    slow = ", network file system: slower journal" if is_network_file_system(kind) else ""
    yield CheckResult("store", OK, f"{path}, {runs} runs{slow}")


def _check_engines() -> Iterator[CheckResult]:
    machine = services.engine_capabilities("local")
    gpus = formatting.pluralize(machine.gpus, "GPU") if machine.gpus else "no GPU"
    yield CheckResult(
        "local",
        OK,
        f"{formatting.pluralize(machine.cpus, 'CPU')}, {formatting.format_size(machine.memory_mb * 2**20)}, {gpus}",
    )
    if machine.supports_containers:
        yield CheckResult("containers", OK, f"Apptainer: {shutil.which('apptainer')}")
    else:
        yield CheckResult(
            "containers", WARNING, "no Apptainer", "install it for steps with a `container`, or use --no-container"
        )


def _check_pool() -> Iterator[CheckResult]:
    """Check the pool if HTCondor is installed or configured."""
    if shutil.which("condor_submit") or os.environ.get("CONDOR_CONFIG"):
        yield from (
            CheckResult("htcondor", check.status, check.message, check.hint) for check in services.check_access_point()
        )


def _check_slurm(with_node: bool) -> Iterator[CheckResult]:
    """Check the cluster if Slurm is installed."""
    if shutil.which("sbatch"):
        checks = services.check_slurm_cluster(with_node=with_node)
        yield from (CheckResult("slurm", check.status, check.message, check.hint) for check in checks)
    elif with_node:
        yield CheckResult("slurm", ERROR, "sbatch was not found", "run this on a login node of a Slurm cluster")


def _check_python() -> Iterator[CheckResult]:
    python = shutil.which("python3")
    if python is None:
        yield CheckResult("python3", WARNING, "not on PATH", "steps that call python3 will fail")
        return
    yield CheckResult("python3", OK, f"{python} (used by steps that call python3)")


def _check_network() -> Iterator[CheckResult]:
    paths = ssl.get_default_verify_paths()
    bundle = paths.cafile or paths.capath
    yield (
        CheckResult("TLS", OK, f"certificates in {bundle}")
        if bundle
        else CheckResult("TLS", ERROR, "no certificates", "install ca-certificates, or set SSL_CERT_FILE")
    )
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if proxy:
        yield CheckResult("proxy", OK, proxy.rpartition("@")[2])


def _check_tokens() -> Iterator[CheckResult]:
    """Check every place where tools look for bearer tokens, and when the tokens expire."""
    results = [_check_token(location, token) for location, token in _find_tokens()]
    yield from results or [CheckResult("tokens", OK, "none found (only needed for protected data)")]


def _find_tokens() -> Iterator[tuple[str, str | None]]:
    if os.environ.get("BEARER_TOKEN"):
        yield "$BEARER_TOKEN", os.environ["BEARER_TOKEN"].strip()
    for name in filter(os.environ.get, _TOKEN_FILE_ENV_VARS):
        yield f"{os.environ[name]} (${name})", read_token(Path(os.environ[name]))
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"bt_u{os.getuid()}"
    condor_tokens = sorted(Path(os.environ["_CONDOR_CREDS"]).glob("*.use")) if os.environ.get("_CONDOR_CREDS") else []
    for path in (*([runtime] if runtime.exists() else []), *condor_tokens):
        yield str(path), read_token(path)


def _check_token(location: str, token: str | None) -> CheckResult:
    if not token:
        return CheckResult("tokens", WARNING, f"no token in {location}", "store a token there, or unset the variable")
    expires_at = token_expires_at(token)
    if expires_at is not None and expires_at < time.time():
        age = formatting.format_duration(time.time() - expires_at)
        return CheckResult("tokens", WARNING, f"the token in {location} expired {age} ago", "get a new one")
    validity = f", valid for {formatting.format_duration(expires_at - time.time())}" if expires_at is not None else ""
    return CheckResult("tokens", OK, f"found in {location}{validity}")


_CHECKS: tuple[Callable[[], Iterator[CheckResult]], ...] = (
    _check_versions,
    _check_disk,
    _check_folder,
    _check_store,
    _check_engines,
    _check_pool,
    _check_python,
    _check_network,
    _check_tokens,
)
