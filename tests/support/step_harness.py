"""A sandbox in which tests run steps with real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from packtrain.agent.sandbox import Sandbox
from packtrain.agent.steps.guard import Guard
from packtrain.agent.steps.processes import Processes
from packtrain.agent.steps.runner import StepRunner
from packtrain.agent.stop_request import Stop
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import AttemptFolder, EnvVar, Job, Launch, Limits, Resources, Run, Secret, Step

HOST_ENV = {"PATH": os.environ["PATH"], "FROM_HOST": "host"}


class Bench:
    def __init__(self, folder: Path, secrets=None, grace_s: float = 5.0, host_env=HOST_ENV) -> None:
        self.box = Sandbox(folder / "sandbox", AttemptFolder(folder))
        self.box.create()
        self.secrets, self.host_env = secrets or {}, host_env
        self.redactor = Redactor(self.secrets.values())
        self.journal = Journal(self.box.home.journal, "run-1", "7", "agent-1", self.redactor)
        self.stop = Stop()
        self.guard = Guard.start()
        self.processes = Processes(self.guard, grace_s)

    def close(self) -> None:
        self.processes.terminate_all()
        self.guard.quit()
        self.journal.close()

    def reveal(self, text) -> str:
        return self.secrets[text.name] if isinstance(text, Secret) else text

    def run(self, *steps: Step, **job) -> None:
        planned = Job("7", job.pop("point", ()), Resources(), Limits(), steps, **job)
        StepRunner(
            planned,
            self.box,
            self.journal,
            self.redactor,
            self.reveal,
            self.stop,
            self.host_env,
            "run-1",
            self.processes,
        ).run_all()

    def events(self, kind: str):
        return [event.data for event in JournalReader(self.box.home.journal).read() if event.kind == kind]

    def notices(self) -> str:
        return "\n".join(event["text"] for event in self.events("notice"))

    def log(self, name: str) -> str:
        return (self.box.home.logs / name).read_text()

    def trace(self):
        """The words that steps added to the file `trace`, in order."""
        path = self.box.root / "trace"
        return path.read_text().split() if path.exists() else []


def sh(command: str, name: str = "", shell: str = "/bin/sh", **rest) -> Step:
    """A step that runs a command; `rest` goes to the Step, and env, resources, container, work_dir to its Run."""
    for_run = {key: rest.pop(key) for key in ("env", "resources", "container", "work_dir") if key in rest}
    return Step(name, Run(command, shell, **for_run), **rest)


def mark(word: str, **rest) -> Step:
    """A step that leaves a word in the trace."""
    return sh(f"echo {word} >> trace", **rest)


def env(**variables):
    return tuple(EnvVar(key, value) for key, value in variables.items())


def fails(bench, *steps, **job):
    try:
        bench.run(*steps, **job)
    except FailedError as error:
        return error
    raise AssertionError("it did not fail")


def launch(name, *steps, handle="", signal_at_exit=signal.SIGTERM):
    return Step(name, Launch(handle, int(signal_at_exit), steps))


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still lives")
