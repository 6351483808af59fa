"""A sandbox in which tests run steps with real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.runner import StepRunner
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import AttemptFolder, EnvVar, Job, LaunchAction, Limits, Resources, RunAction, Secret, Step

HOST_ENVIRONMENT = {"PATH": os.environ["PATH"], "FROM_HOST": "host"}


class StepHarness:
    """Runs steps in a sandbox, as the agent does, and reads their logs and events."""

    def __init__(self, folder: Path, secrets=None, grace_s: float = 5.0, host_environment=HOST_ENVIRONMENT) -> None:
        self.sandbox = Sandbox(folder / "sandbox", AttemptFolder(folder))
        self.sandbox.create()
        self.secrets, self.host_environment = secrets or {}, host_environment
        self.redactor = Redactor(self.secrets.values())
        self.journal = Journal(self.sandbox.attempt_folder.journal, "run-1", "7", "agent-1", self.redactor)
        self.stop_request = StopRequest()
        self.guard = Guard.start()
        self.processes = ProcessTable(self.guard, grace_s)

    def close(self) -> None:
        self.processes.terminate_all()
        self.guard.quit()
        self.journal.close()

    def resolve_secret(self, value) -> str:
        return self.secrets[value.name] if isinstance(value, Secret) else value

    def run(self, *steps: Step, **job) -> None:
        planned_job = Job("7", job.pop("point", ()), Resources(), Limits(), steps, **job)
        StepRunner(
            planned_job,
            self.sandbox,
            self.journal,
            self.redactor,
            self.resolve_secret,
            self.stop_request,
            self.host_environment,
            "run-1",
            self.processes,
        ).run_all()

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
    """Make a step that runs a command. env, resources, container and work_dir are fields of its RunAction."""
    run_fields = {
        key: step_fields.pop(key) for key in ("env", "resources", "container", "work_dir") if key in step_fields
    }
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
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still alive")
