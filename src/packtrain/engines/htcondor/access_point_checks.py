"""Checks whether this access point is ready, for `packtrain doctor`.

The checks cover the bindings and the schedd, limits, credentials, live updates, the user's settings and free space.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.setup_check import ERROR, OK, WARN, SetupCheck
from packtrain.errors import PacktrainError
from packtrain.formatting import format_size
from packtrain.spec.user_config import load_user_config, user_config_path

_MIB = 1 << 20
_MIN_FREE_INODES = 100_000
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_access_point(client: CondorClient, folder: Path) -> Iterator[SetupCheck]:
    """Run all checks, or only the first one if the pool does not answer.

    Args:
        client: Calls the schedd.
        folder: Where outputs are stored; its file system is checked.
    """
    try:
        bindings, schedd = client.get_versions()
        can_query = client.query("false", ("ClusterId",)) == []
    except PacktrainError as error:
        hint = "check CONDOR_CONFIG, and whether the schedd runs: try `condor_q`"
        yield SetupCheck(ERROR, str(error), hint)
        return
    yield _check_versions(bindings, schedd, can_query)
    yield _check_user()
    yield _check_input_limit(client)
    yield _check_credentials(client)
    yield _check_chirp(client)
    yield _check_user_config()
    yield _check_free_space(folder)


def _check_versions(bindings: str, schedd: str, can_query: bool) -> SetupCheck:
    ours, theirs = _VERSION.search(bindings), _VERSION.search(schedd)
    versions = f"bindings {ours[0] if ours else bindings}, schedd {theirs[0] if theirs else 'of unknown version'}"
    if ours and theirs and ours[1] != theirs[1]:
        hint = f"install bindings of the same series as the schedd: pip install 'htcondor=={theirs[1]}.*'"
        return SetupCheck(WARN, versions, hint)
    if can_query:
        return SetupCheck(OK, f"{versions}; the queue can be queried")
    return SetupCheck(ERROR, f"{versions}; the queue cannot be queried")


def _check_user() -> SetupCheck:
    if os.geteuid() == 0:
        return SetupCheck(ERROR, "you are root", "HTCondor does not accept jobs of root: log in as yourself")
    return SetupCheck(OK, f"jobs are submitted as user {os.geteuid()}")


def _check_input_limit(client: CondorClient) -> SetupCheck:
    value = client.get_param("MAX_TRANSFER_INPUT_MB")
    if value.lstrip("-").isdigit() and int(value) >= 0:
        limit = format_size(int(value) * _MIB)
        return SetupCheck(OK, f"HTCondor sends at most {limit} of inputs per job (MAX_TRANSFER_INPUT_MB)")
    return SetupCheck(OK, "no limit for inputs that HTCondor sends (MAX_TRANSFER_INPUT_MB)")


def _check_credentials(client: CondorClient) -> SetupCheck:
    """Check whether jobs can get the tokens that `use_oauth_services` requests."""
    folder = client.get_param("SEC_CREDENTIAL_DIRECTORY_OAUTH")
    if folder:
        message = f"jobs can get tokens (`use_oauth_services`; SEC_CREDENTIAL_DIRECTORY_OAUTH = {folder})"
        return SetupCheck(OK, message)
    message = "jobs cannot get tokens (SEC_CREDENTIAL_DIRECTORY_OAUTH is not set)"
    services = _requested_oauth_services()
    if services:
        hint = "remove that line, or ask the administrators of the access point for a credential monitor"
        return SetupCheck(WARN, f"{message}, but your settings have use_oauth_services = {services}", hint)
    return SetupCheck(OK, message)


def _requested_oauth_services() -> str:
    try:
        commands = load_user_config(user_config_path()).htcondor.submit_commands
    except PacktrainError:
        return ""  # _check_user_config reports it
    return next((value for key, value in commands.items() if key.strip().lower() == "use_oauth_services"), "")


def _check_chirp(client: CondorClient) -> SetupCheck:
    """Check the settings of the access point; a site may still disable Chirp."""
    if client.get_param("ENABLE_CHIRP").lower() == "false":
        hint = "`packtrain ps` shows only what the event log contains"
        return SetupCheck(WARN, "ENABLE_CHIRP is off on this machine", hint)
    if client.get_param("ENABLE_CHIRP_UPDATES").lower() == "false":
        hint = "progress arrives late, with HTCondor's own updates"
        return SetupCheck(WARN, "ENABLE_CHIRP_UPDATES is off on this machine", hint)
    return SetupCheck(OK, "jobs can report their progress (Chirp)")


def _check_user_config() -> SetupCheck:
    path = user_config_path()
    try:
        config = load_user_config(path).htcondor
    except PacktrainError as error:
        return SetupCheck(ERROR, str(error), "fix the file, or remove it")
    if not path.exists():
        return SetupCheck(OK, f"no settings file ({path}); the OSPool needs `htcondor: {{project: …}}` there")
    return SetupCheck(OK, f"settings from {path}, project {config.project or 'none'}")


def _check_free_space(folder: Path) -> SetupCheck:
    """Check free space and inodes; on most file systems they include quotas."""
    stats = os.statvfs(folder)
    free, inodes = stats.f_bavail * stats.f_frsize, stats.f_favail
    message = f"{format_size(free)} and {inodes} files free for outputs in the current folder"
    if inodes and inodes < _MIN_FREE_INODES:
        return SetupCheck(WARN, message, "each job needs about ten files in this folder")
    return SetupCheck(OK, message)
