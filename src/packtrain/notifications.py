"""Notifications that a run has ended: `--notify` runs a command or sends JSON to a URL.

The key `text` of the JSON is one sentence, so that webhooks of Slack and Mattermost show it as it is.
"""

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

from packtrain.fileutil import atomic_write
from packtrain.state import JobStatus, RunState
from packtrain.state.run import run_status

_HTTP_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 60.0
_RETRY_DELAYS_S: Sequence[float] = (1.0, 5.0)
_MAX_FAILURES = 5
_CONSEQUENTIAL_KINDS = ("run_stopped", "budget_exceeded")


def is_url(target: str) -> bool:
    """Return whether a target is a URL and not a command."""
    return target.startswith(("http://", "https://"))


def validate_target(target: str) -> str:
    """Return the target of `--notify` unchanged, or raise ValueError with a message for the user."""
    if not target.strip():
        raise ValueError("should be a command, or a URL that starts with https://")
    if is_url(target) and not _url_host(target):
        raise ValueError("should be a command, or a URL with a host; this URL has none")
    if not is_url(target) and "://" in target.split()[0]:
        raise ValueError(f"should be a command or an http URL, but starts with {target.split('://')[0]}://")
    return target


def _url_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


# The message


def build_message(state: RunState, run_name: str, run_dir: Path) -> dict[str, Any]:
    """Return the JSON of a notification: how the run ended, and its most frequent failures."""
    status = run_status(state, has_live_supervisor=False)
    failures = _count_failures(state)
    n_succeeded = state.count_jobs(JobStatus.SUCCEEDED)
    first_failure = f": {failures[0][0][1]}" if failures else ""
    return {
        "text": f"{state.run} {status}: {n_succeeded} of {len(state.jobs)} jobs succeeded{first_failure}",
        "run": state.run,
        "name": run_name,
        "status": status,
        "run_dir": str(run_dir),
        "jobs": len(state.jobs),
        "succeeded": n_succeeded,
        "failed": state.count_jobs(JobStatus.FAILED),
        "cancelled": state.count_jobs(JobStatus.CANCELLED),
        "failures": [{"kind": kind, "detail": detail, "jobs": n_jobs} for (kind, detail), n_jobs in failures],
    }


def _count_failures(state: RunState) -> list[tuple[tuple[str, str], int]]:
    """Return the failures by frequency. Jobs that were not started because of other failures come last."""
    results = (job.result for job in state.jobs.values() if job.result)
    counts = Counter((result.failure.kind, result.failure.detail) for result in results if result.failure)
    return sorted(counts.most_common(), key=lambda item: item[0][0] in _CONSEQUENTIAL_KINDS)[:_MAX_FAILURES]


# Sending it


def send(target: str, payload: Mapping[str, Any], retry_delays_s: Sequence[float] = _RETRY_DELAYS_S) -> str:
    """Send a notification. Never raises, because a failed notification must not fail the run.

    Args:
        target: A URL or a command.
        payload: The JSON to send.
        retry_delays_s: Delays before each retry of an HTTP request, in seconds.

    Returns:
        "" if it was sent, else an error message.
    """
    return _post(target, payload, retry_delays_s) if is_url(target) else _run_command(target, payload)


def _post(url: str, payload: Mapping[str, Any], retry_delays_s: Sequence[float]) -> str:
    """Send a POST request and retry transient errors.

    The error message contains only the host, because the paths of webhooks are secret.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError

    problem = ""
    for delay_s in (*retry_delays_s, None):
        try:
            _post_once(url, payload)
            return ""
        except HTTPError as error:
            problem = f"the server responded with {error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, ValueError, HTTPException) as error:
            problem = f"the server did not respond ({getattr(error, 'reason', error)})"
        if delay_s is not None:
            time.sleep(delay_s)
    return f"cannot send the notification to {_url_host(url)}: {problem}"


def _post_once(url: str, payload: Mapping[str, Any]) -> None:
    from urllib.request import Request, urlopen

    body, headers = json.dumps(dict(payload)).encode(), {"Content-Type": "application/json"}
    with urlopen(Request(url, body, headers, method="POST"), timeout=_HTTP_TIMEOUT_S):
        pass


def _run_command(command: str, payload: Mapping[str, Any]) -> str:
    """Run a command in a shell, with parts of the payload as environment variables and all of it on standard input."""
    names = {"run": "RUN", "status": "STATUS", "text": "TEXT", "run_dir": "RUN_DIR"}
    variables = {f"PACKTRAIN_{name}": str(payload[key]).replace("\0", "") for key, name in names.items()}
    try:
        process = subprocess.run(  # noqa: S602 - the command is the user's own
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
        return f"the --notify command did not finish within {_COMMAND_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return f"cannot start the --notify command: {error}"
    lines = process.stdout.decode("utf-8", "replace").strip().splitlines()
    last_line = f": {lines[-1]}" if lines else ""
    return f"the --notify command failed with exit code {process.returncode}{last_line}" if process.returncode else ""


# Once for each end of a run


def write_target(target_path: Path, target: str) -> None:
    """Store the target of a run. Only the owner may read the file, because the URL of a webhook is secret."""
    _write_target(target_path, target, "")


def notify_run_ended(target_path: Path, state: RunState, run_name: str, run_dir: Path) -> str:
    """Send the notification of a finished run, unless it has no target or this end was already notified.

    Returns:
        "" if it succeeded, else an error message.
    """
    try:
        stored = json.loads(target_path.read_text(encoding="utf-8"))
        target, notified_end = str(stored["target"]), stored.get("notified_end")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"cannot send the notification that the run has ended: cannot read {target_path.name} ({error})"
    end = _end_id(state)
    if not state.is_finished or notified_end == end:
        return ""
    problem = send(target, build_message(state, run_name, run_dir))
    if not problem:
        _write_target(target_path, target, end)
    return problem


def _end_id(state: RunState) -> str:
    """Return an id of this end of the run. A run that is resumed ends again, with another id."""
    orders = [job.result.order for job in state.jobs.values() if job.result]
    return hashlib.sha256(json.dumps(sorted(orders)).encode()).hexdigest()[:16]


def _write_target(path: Path, target: str, notified_end: str) -> None:
    atomic_write(path, json.dumps({"target": target, "notified_end": notified_end}) + "\n", durable=True, mode=0o600)
