"""A sandbox in which tests run steps with real processes."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from packtrain.agent.steps.runner import StepRunner
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.plan import EnvVar, Job, LaunchAction, Limits, Resources, RunAction, Step
from tests.support.attempt_contexts import attempt_contexts
from tests.support.waiting import wait_until

_RUN_FIELDS = ("env", "resources", "container", "work_dir", "stdout", "stderr", "append_logs")
HOST_ENVIRONMENT = {"PATH": os.environ["PATH"], "FROM_HOST": "host"}


class StepHarness:
    """Runs steps in a sandbox, as the agent does, and reads their logs and events."""

    def __init__(self, folder: Path, secrets=None, grace_s: float = 5.0, host_environment=HOST_ENVIRONMENT) -> None:
        secrets_folder = folder / "secrets"
        secrets_folder.mkdir(parents=True, exist_ok=True)
        for name, value in (secrets or {}).items():
            (secrets_folder / name).write_text(value)
        self.host_environment = host_environment
        self._contexts = ExitStack()
        make = self._contexts.enter_context(attempt_contexts(folder))
        self.context = make(Job("7", (), Resources(), Limits(), ()), attempt=".", grace_s=grace_s)
        self.sandbox, self.stop_request = self.context.sandbox, self.context.stop

    def close(self) -> None:
        self.context.processes.terminate_all()
        self._contexts.close()
        self.context.journal.close()

    def run(self, *steps: Step, **job) -> None:
        context = replace(self.context, job=replace(self.context.job, steps=steps, **job))
        StepRunner(context, self.host_environment).run_all()

    def events(self, kind: str):
        return [event.data for event in JournalReader(self.sandbox.attempt_folder.journal).read() if event.kind == kind]

    def notices(self) -> str:
        return "\n".join(event["text"] for event in self.events("notice"))

    def read_log(self, name: str) -> str:
        return (self.sandbox.attempt_folder.logs / name).read_text()

    def read_trace(self):
        """Return the words that steps appended to the file `trace`, in order."""
        path = self.sandbox.root / "trace"
        return path.read_text().split() if path.exists() else []


def make_step(command: str, name: str = "", shell: str = "/bin/sh", **step_fields) -> Step:
    """Make a step that runs a command. Fields of its RunAction are those in _RUN_FIELDS."""
    run_fields = {key: step_fields.pop(key) for key in _RUN_FIELDS if key in step_fields}
    return Step(name, RunAction(command, shell, **run_fields), **step_fields)


def make_trace_step(text: str, **step_fields) -> Step:
    """Make a step that appends a line to the trace."""
    return make_step(f"echo {text} >> trace", **step_fields)


def make_env_vars(**variables):
    return tuple(EnvVar(key, value) for key, value in variables.items())


def run_expecting_failure(harness, *steps, **job):
    try:
        harness.run(*steps, **job)
    except FailedError as error:
        return error
    raise AssertionError("the steps did not fail")


def make_launch_step(name, *steps, handle="", signal_at_exit=signal.SIGTERM):
    return Step(name, LaunchAction(handle, int(signal_at_exit), steps))


def assert_process_ended(pid: int) -> None:
    def has_ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(has_ended)
