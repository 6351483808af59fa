"""Telling somebody that a run has ended: a command is run, or an address gets a POST with JSON.

`text` says it in one sentence, so that a webhook of Slack or Mattermost shows it as it is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packtrain.state import JobStatus, RunState
from packtrain.views.summary import run_status

_PATIENCE_S = 10.0
_COMMAND_S = 60.0
_WAITS_S: Sequence[float] = (1.0, 5.0)
_MOST_FAILURES = 5
_FOLLOWS = ("run_stopped", "budget_spent")


def is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def checked(target: str) -> str:
    """Raises ValueError with a sentence."""
    if not target.strip():
        raise ValueError("should be a command, or an address that starts with https://")
    if is_address(target) and not _host(target):
        raise ValueError("should be a command, or an address with a host; this one has none")
    if not is_address(target) and "://" in target.split()[0]:
        raise ValueError(f"should be a command or an http address, but begins with {target.split('://')[0]}://")
    return target


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


# What is told


def message(state: RunState, name: str, folder: Path) -> dict[str, Any]:
    """How the run ended, with its most frequent failures."""
    status = run_status(state, attended=False)
    failures = _failures(state)
    done, first = state.count(JobStatus.SUCCEEDED), f": {failures[0][0][1]}" if failures else ""
    return {
        "text": f"{state.run} {status}: {done} of {len(state.jobs)} jobs succeeded{first}",
        "run": state.run,
        "name": name,
        "status": status,
        "folder": str(folder),
        "jobs": len(state.jobs),
        "succeeded": done,
        "failed": state.count(JobStatus.FAILED),
        "cancelled": state.count(JobStatus.CANCELLED),
        "failures": [{"kind": kind, "detail": detail, "jobs": jobs} for (kind, detail), jobs in failures],
    }


def _failures(state: RunState) -> list[tuple[tuple[str, str], int]]:
    """The most frequent first; what others of the run had to suffer for it last."""
    verdicts = (job.verdict for job in state.jobs.values() if job.verdict)
    counted = Counter((v.failure.kind, v.failure.detail) for v in verdicts if v.failure)
    return sorted(counted.most_common(), key=lambda one: one[0][0] in _FOLLOWS)[:_MOST_FAILURES]


# Telling it


def send(target: str, told: Mapping[str, Any], waits: Sequence[float] = _WAITS_S) -> str:
    """ "" when it was told, else a sentence. Never raises: a run is not spoilt by that."""
    return _post(target, told, waits) if is_address(target) else _run(target, told)


def _post(address: str, told: Mapping[str, Any], waits: Sequence[float]) -> str:
    """What may pass is tried again. The address itself is not shown: the paths of webhooks are secrets."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    trouble = ""
    for wait in (*waits, None):
        try:
            _post_once(address, told)
            return ""
        except HTTPError as error:
            trouble = f"it answered {error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, ValueError, HTTPException) as error:
            trouble = f"there was no answer ({getattr(error, 'reason', error)})"
        if wait is not None:
            time.sleep(wait)
    return f"{_host(address)} could not be told that the run has ended: {trouble}"


def _post_once(address: str, told: Mapping[str, Any]) -> None:
    from urllib.request import Request, urlopen

    body, kind = json.dumps(dict(told)).encode(), {"Content-Type": "application/json"}
    with urlopen(Request(address, body, kind, method="POST"), timeout=_PATIENCE_S):
        pass


def _run(command: str, told: Mapping[str, Any]) -> str:
    """In a shell, with the figures in variables and as JSON on its standard input."""
    names = {"run": "RUN", "status": "STATUS", "text": "TEXT", "folder": "FOLDER"}
    variables = {f"PACKTRAIN_{name}": str(told[key]).replace("\0", "") for key, name in names.items()}
    try:
        done = subprocess.run(  # noqa: S602 - the command is the user's own
            command,
            shell=True,
            input=json.dumps(dict(told)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_S,
            env={**os.environ, **variables},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the command of --notify did not end within {_COMMAND_S:g} s"
    except (OSError, ValueError) as error:
        return f"the command of --notify could not be started: {error}"
    words = done.stdout.decode("utf-8", "replace").strip().splitlines()
    said = f": {words[-1]}" if words else ""
    return f"the command of --notify ended with exit code {done.returncode}{said}" if done.returncode else ""


# Once for each end


def write_target(path: Path, target: str) -> None:
    """Only for its owner: the address of a webhook is a secret."""
    _write(path, {"to": target, "told": ""})


def tell_end(path: Path, state: RunState, name: str, folder: Path) -> str:
    """Tell it if somebody wants to know and has not been told of this very end. A sentence if that failed."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        target, told = str(known["to"]), known.get("told")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"nobody was told that the run has ended: {path.name} cannot be read ({error})"
    end = _end_of(state)
    if not state.finished or told == end:
        return ""
    trouble = send(target, message(state, name, folder))
    if not trouble:
        _write(path, {"to": target, "told": end})
    return trouble


def _end_of(state: RunState) -> str:
    """A name for this end: a run that was resumed has another one."""
    orders = [job.verdict.order for job in state.jobs.values() if job.verdict]
    return hashlib.sha256(json.dumps(sorted(orders)).encode()).hexdigest()[:16]


def _write(path: Path, data: Mapping[str, str]) -> None:
    temporary = path.with_suffix(".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(dict(data)) + "\n")
    temporary.replace(path)
