"""Is this access point ready? Bindings and schedd, limits, credentials, live words, quota."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.errors import PacktrainError
from packtrain.spec.units import format_size
from packtrain.spec.user_config import load_user_config, user_config_path

OK, WARN, ERROR = "ok", "warning", "error"
_MIB = 1 << 20
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class AccessPointCheck:
    status: str
    message: str
    hint: str = ""


def check_access_point(client: CondorClient, folder: Path) -> Iterator[AccessPointCheck]:
    try:
        bindings, schedd = client.get_versions()
        ready = client.query("false", ("ClusterId",)) == []
    except PacktrainError as error:
        yield AccessPointCheck(ERROR, str(error), "is CONDOR_CONFIG right, and does the schedd run? try `condor_q`")
        return
    yield _check_versions(bindings, schedd, ready)
    yield _check_user()
    yield _check_input_limit(client)
    yield _check_credentials(client)
    yield from _check_chirp(client)
    yield _check_user_config()
    yield _check_free_space(folder)


def _check_versions(bindings: str, schedd: str, can_query: bool) -> AccessPointCheck:
    ours, theirs = _VERSION.search(bindings), _VERSION.search(schedd)
    shown = f"bindings {ours[0] if ours else bindings}, schedd {theirs[0] if theirs else 'of unknown version'}"
    if ours and theirs and ours[1] != theirs[1]:
        return AccessPointCheck(
            WARN, shown, f"install bindings of the schedd's series: pip install 'htcondor=={theirs[1]}.*'"
        )
    return AccessPointCheck(OK if can_query else ERROR, f"{shown}; the queue can be asked")


def _check_user() -> AccessPointCheck:
    if os.geteuid() == 0:
        return AccessPointCheck(ERROR, "you are root", "HTCondor takes no jobs of root: log in as yourself")
    return AccessPointCheck(OK, f"jobs are submitted as user {os.geteuid()}")


def _check_input_limit(client: CondorClient) -> AccessPointCheck:
    value = client.get_param("MAX_TRANSFER_INPUT_MB")
    if value.lstrip("-").isdigit() and int(value) >= 0:
        return AccessPointCheck(
            OK, f"native inputs of at most {format_size(int(value) * _MIB)} a job (MAX_TRANSFER_INPUT_MB)"
        )
    return AccessPointCheck(OK, "no limit for native inputs (MAX_TRANSFER_INPUT_MB)")


def _check_credentials(client: CondorClient) -> AccessPointCheck:
    """Whether jobs can get tokens, as `use_oauth_services` asks for them."""
    kept = client.get_param("SEC_CREDENTIAL_DIRECTORY_OAUTH")
    if kept:
        return AccessPointCheck(
            OK, f"jobs can get tokens (`use_oauth_services`; SEC_CREDENTIAL_DIRECTORY_OAUTH = {kept})"
        )
    seen, wanted = "no tokens for jobs (SEC_CREDENTIAL_DIRECTORY_OAUTH is not set)", _requested_oauth_services()
    if wanted:
        remedy = "take that line out, or ask whoever runs the access point for a credential monitor"
        return AccessPointCheck(WARN, f"{seen}, but your settings say use_oauth_services = {wanted}", remedy)
    return AccessPointCheck(OK, seen)


def _requested_oauth_services() -> str:
    try:
        lines = load_user_config(user_config_path()).htcondor.submit_commands
    except PacktrainError:
        return ""  # told by `_settings`
    return next((value for key, value in lines.items() if key.strip().lower() == "use_oauth_services"), "")


def _check_chirp(client: CondorClient) -> Iterator[AccessPointCheck]:
    """What the access point itself says; a site may still switch the proxy off."""
    if client.get_param("ENABLE_CHIRP").lower() == "false":
        yield AccessPointCheck(WARN, "ENABLE_CHIRP is off here", "`ps` knows only what the user log tells")
    elif client.get_param("ENABLE_CHIRP_UPDATES").lower() == "false":
        yield AccessPointCheck(
            WARN, "ENABLE_CHIRP_UPDATES is off here", "progress comes late, with HTCondor's own updates"
        )
    else:
        yield AccessPointCheck(OK, "jobs can tell how far they are (Chirp)")


def _check_user_config() -> AccessPointCheck:
    path = user_config_path()
    try:
        settings = load_user_config(path).htcondor
    except PacktrainError as error:
        return AccessPointCheck(ERROR, str(error), "mend the file, or remove it")
    if not path.exists():
        return AccessPointCheck(OK, f"no settings of yours ({path}); the OSPool wants `htcondor: {{project: …}}` there")
    return AccessPointCheck(OK, f"settings from {path}, project {settings.project or 'none'}")


def _check_free_space(folder: Path) -> AccessPointCheck:
    """Quotas show up as free room on most file systems."""
    found = os.statvfs(folder)
    free, inodes = found.f_bavail * found.f_frsize, found.f_favail
    few = inodes and inodes < 100_000
    remedy = "each job needs about ten files here" if few else ""
    return AccessPointCheck(
        WARN if few else OK, f"room for {format_size(free)} and {inodes} files of outputs here", remedy
    )
