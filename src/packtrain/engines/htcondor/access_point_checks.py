"""Is this access point ready? Bindings and schedd, limits, credentials, live words, quota."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packtrain.engines.htcondor.condor_client import Client
from packtrain.errors import PacktrainError
from packtrain.spec.units import show_size
from packtrain.spec.user_config import load_settings, settings_path

OK, WARN, BAD = "ok", "warning", "bad"
_MIB = 1 << 20
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Finding:
    status: str
    seen: str
    remedy: str = ""


def examine(client: Client, folder: Path) -> Iterator[Finding]:
    try:
        bindings, schedd = client.version()
        ready = client.query("false", ("ClusterId",)) == []
    except PacktrainError as error:
        yield Finding(BAD, str(error), "is CONDOR_CONFIG right, and does the schedd run? try `condor_q`")
        return
    yield _versions(bindings, schedd, ready)
    yield _root()
    yield _limit(client)
    yield _credentials(client)
    yield from _live_words(client)
    yield _settings()
    yield _room(folder)


def _versions(bindings: str, schedd: str, ready: bool) -> Finding:
    ours, theirs = _VERSION.search(bindings), _VERSION.search(schedd)
    shown = f"bindings {ours[0] if ours else bindings}, schedd {theirs[0] if theirs else 'of unknown version'}"
    if ours and theirs and ours[1] != theirs[1]:
        return Finding(WARN, shown, f"install bindings of the schedd's series: pip install 'htcondor=={theirs[1]}.*'")
    return Finding(OK if ready else BAD, f"{shown}; the queue can be asked")


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding(BAD, "you are root", "HTCondor takes no jobs of root: log in as yourself")
    return Finding(OK, f"jobs are submitted as user {os.geteuid()}")


def _limit(client: Client) -> Finding:
    value = client.param("MAX_TRANSFER_INPUT_MB")
    if value.lstrip("-").isdigit() and int(value) >= 0:
        return Finding(OK, f"native inputs of at most {show_size(int(value) * _MIB)} a job (MAX_TRANSFER_INPUT_MB)")
    return Finding(OK, "no limit for native inputs (MAX_TRANSFER_INPUT_MB)")


def _credentials(client: Client) -> Finding:
    """Whether jobs can get tokens, as `use_oauth_services` asks for them."""
    kept = client.param("SEC_CREDENTIAL_DIRECTORY_OAUTH")
    if kept:
        return Finding(OK, f"jobs can get tokens (`use_oauth_services`; SEC_CREDENTIAL_DIRECTORY_OAUTH = {kept})")
    seen, wanted = "no tokens for jobs (SEC_CREDENTIAL_DIRECTORY_OAUTH is not set)", _wanted_services()
    if wanted:
        remedy = "take that line out, or ask whoever runs the access point for a credential monitor"
        return Finding(WARN, f"{seen}, but your settings say use_oauth_services = {wanted}", remedy)
    return Finding(OK, seen)


def _wanted_services() -> str:
    try:
        lines = load_settings(settings_path()).htcondor.lines
    except PacktrainError:
        return ""  # told by `_settings`
    return next((value for key, value in lines.items() if key.strip().lower() == "use_oauth_services"), "")


def _live_words(client: Client) -> Iterator[Finding]:
    """What the access point itself says; a site may still switch the proxy off."""
    if client.param("ENABLE_CHIRP").lower() == "false":
        yield Finding(WARN, "ENABLE_CHIRP is off here", "`ps` knows only what the user log tells")
    elif client.param("ENABLE_CHIRP_UPDATES").lower() == "false":
        yield Finding(WARN, "ENABLE_CHIRP_UPDATES is off here", "progress comes late, with HTCondor's own updates")
    else:
        yield Finding(OK, "jobs can tell how far they are (Chirp)")


def _settings() -> Finding:
    path = settings_path()
    try:
        settings = load_settings(path).htcondor
    except PacktrainError as error:
        return Finding(BAD, str(error), "mend the file, or remove it")
    if not path.exists():
        return Finding(OK, f"no settings of yours ({path}); the OSPool wants `htcondor: {{project: …}}` there")
    return Finding(OK, f"settings from {path}, project {settings.project or 'none'}")


def _room(folder: Path) -> Finding:
    """Quotas show up as free room on most file systems."""
    found = os.statvfs(folder)
    free, inodes = found.f_bavail * found.f_frsize, found.f_favail
    few = inodes and inodes < 100_000
    remedy = "each job needs about ten files here" if few else ""
    return Finding(WARN if few else OK, f"room for {show_size(free)} and {inodes} files of outputs here", remedy)
