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

_HTTP_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 60.0
_RETRY_DELAYS_S: Sequence[float] = (1.0, 5.0)
_MAX_FAILURES = 5
_CONSEQUENTIAL_KINDS = ("run_stopped", "budget_exceeded")


def is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def validate_target(target: str) -> str:
    """Raises ValueError with a sentence."""
    if not target.strip():
        raise ValueError("should be a command, or an address that starts with https://")
    if is_url(target) and not _url_host(target):
        raise ValueError("should be a command, or an address with a host; this one has none")
    if not is_url(target) and "://" in target.split()[0]:
        raise ValueError(f"should be a command or an http address, but begins with {target.split('://')[0]}://")
    return target


def _url_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


# What is told


def build_message(state: RunState, run_name: str, run_dir: Path) -> dict[str, Any]:
    """How the run ended, with its most frequent failures."""
    status = run_status(state, has_live_supervisor=False)
    failures = _count_failures(state)
    done, first = state.count_jobs(JobStatus.SUCCEEDED), f": {failures[0][0][1]}" if failures else ""
    return {
        "text": f"{state.run} {status}: {done} of {len(state.jobs)} jobs succeeded{first}",
        "run": state.run,
        "name": run_name,
        "status": status,
        "run_dir": str(run_dir),
        "jobs": len(state.jobs),
        "succeeded": done,
        "failed": state.count_jobs(JobStatus.FAILED),
        "cancelled": state.count_jobs(JobStatus.CANCELLED),
        "failures": [{"kind": kind, "detail": detail, "jobs": jobs} for (kind, detail), jobs in failures],
    }


def _count_failures(state: RunState) -> list[tuple[tuple[str, str], int]]:
    """The most frequent first; what others of the run had to suffer for it last."""
    verdicts = (job.result for job in state.jobs.values() if job.result)
    counted = Counter((v.failure.kind, v.failure.detail) for v in verdicts if v.failure)
    return sorted(counted.most_common(), key=lambda one: one[0][0] in _CONSEQUENTIAL_KINDS)[:_MAX_FAILURES]


# Telling it


def send(target: str, payload: Mapping[str, Any], retry_delays_s: Sequence[float] = _RETRY_DELAYS_S) -> str:
    """ "" when it was told, else a sentence. Never raises: a run is not spoilt by that."""
    return _post(target, payload, retry_delays_s) if is_url(target) else _run_command(target, payload)


def _post(url: str, payload: Mapping[str, Any], retry_delays_s: Sequence[float]) -> str:
    """What may pass is tried again. The address itself is not shown: the paths of webhooks are secrets."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    trouble = ""
    for wait in (*retry_delays_s, None):
        try:
            _post_once(url, payload)
            return ""
        except HTTPError as error:
            trouble = f"it answered {error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, ValueError, HTTPException) as error:
            trouble = f"there was no answer ({getattr(error, 'reason', error)})"
        if wait is not None:
            time.sleep(wait)
    return f"{_url_host(url)} could not be told that the run has ended: {trouble}"


def _post_once(url: str, payload: Mapping[str, Any]) -> None:
    from urllib.request import Request, urlopen

    body, kind = json.dumps(dict(payload)).encode(), {"Content-Type": "application/json"}
    with urlopen(Request(url, body, kind, method="POST"), timeout=_HTTP_TIMEOUT_S):
        pass


def _run_command(command: str, payload: Mapping[str, Any]) -> str:
    """In a shell, with the figures in variables and as JSON on its standard input."""
    names = {"run": "RUN", "status": "STATUS", "text": "TEXT", "run_dir": "RUN_DIR"}
    variables = {f"PACKTRAIN_{name}": str(payload[key]).replace("\0", "") for key, name in names.items()}
    try:
        done = subprocess.run(  # noqa: S602 - the command is the user's own
            command,
            shell=True,
            input=json.dumps(dict(payload)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_TIMEOUT_S,
            env={**os.environ, **variables},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the command of --notify did not end within {_COMMAND_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return f"the command of --notify could not be started: {error}"
    words = done.stdout.decode("utf-8", "replace").strip().splitlines()
    said = f": {words[-1]}" if words else ""
    return f"the command of --notify ended with exit code {done.returncode}{said}" if done.returncode else ""


# Once for each end


def write_target(target_path: Path, target: str) -> None:
    """Only for its owner: the address of a webhook is a secret."""
    _write_private_json(target_path, {"target": target, "notified_end": ""})


def notify_run_ended(target_path: Path, state: RunState, run_name: str, run_dir: Path) -> str:
    """Tell it if somebody wants to know and has not been told of this very end. A sentence if that failed."""
    try:
        known = json.loads(target_path.read_text(encoding="utf-8"))
        target, told = str(known["target"]), known.get("notified_end")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"nobody was told that the run has ended: {target_path.name} cannot be read ({error})"
    end = _end_id(state)
    if not state.is_finished or told == end:
        return ""
    trouble = send(target, build_message(state, run_name, run_dir))
    if not trouble:
        _write_private_json(target_path, {"target": target, "notified_end": end})
    return trouble


def _end_id(state: RunState) -> str:
    """A name for this end: a run that was resumed has another one."""
    orders = [job.result.order for job in state.jobs.values() if job.result]
    return hashlib.sha256(json.dumps(sorted(orders)).encode()).hexdigest()[:16]


def _write_private_json(path: Path, data: Mapping[str, str]) -> None:
    temporary = path.with_suffix(".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(dict(data)) + "\n")
    temporary.replace(path)
