"""Runs of real agents from a built agent.pyz, with access to their journals and outputs."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from packtrain.events import JournalReader
from packtrain.plan import (
    AttemptFolder,
    Input,
    Job,
    Limits,
    Location,
    Plan,
    RemoteFile,
    Resources,
    RunAction,
    Step,
    write_plan,
)
from packtrain.plan.output_manifest import staged_name
from tests.support.waiting import TIMEOUT_S, wait_until


def make_step(command, name="step", **fields):
    return Step(name, RunAction(command, **fields))


def make_job(*steps, inputs=(), retry_timeout_s=0.5, resources=None, limits=None, **fields):
    small = Resources(mem_per_cpu_mb=16)
    return Job(
        "0",
        (),
        resources or small,
        limits or Limits(grace_s=2),
        steps,
        inputs=inputs,
        retry_timeout_s=retry_timeout_s,
        **fields,
    )


def make_input(*urls, name="", token=None, size=None, digest=None, **fields):
    files = tuple(RemoteFile(url.rsplit("/", 1)[-1], (Location(url, token=token),), size, digest) for url in urls)
    return Input(name, f"inputs/{name}" if name else "input", files, **fields)


def read_start_step(run):
    """Return the training step at which the counting trainer started."""
    return int((run.attempt_folder.logs / "train.out").read_text().split()[2])


class AgentRun:
    """One agent process with a folder of its own."""

    def __init__(self, agent, folder, job, secrets=None, environ=None, options=()):
        self.folder, self.agent, self.environment, self.options = Path(folder), agent, environ, options
        self.attempt_folder = AttemptFolder(self.folder / "attempt")
        self.scratch = self.folder / "scratch"
        self.secrets = self.folder / "secrets"
        self.folder.mkdir(exist_ok=True)
        self.secrets.mkdir(exist_ok=True)
        for name, value in (secrets or {}).items():
            (self.secrets / name).write_text(value)
        write_plan(Plan("run-1", "test", "local", (job,)), self.folder / "plan.json")
        self.process = None
        self.stderr = ""

    def start(self):
        options = [
            "--attempt-id",
            "d1",
            "--attempt-folder",
            self.attempt_folder.root,
            "--scratch",
            self.scratch,
            "--secrets",
            self.secrets,
        ]
        command = [sys.executable, "-I", "-S", self.agent, self.folder / "plan.json", *options, *self.options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment)
        return self

    def wait(self):
        """Wait for the agent to end and return its exit code."""
        _, self.stderr = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode

    def start_and_wait(self):
        self.start().wait()
        return self

    def events(self, kind=None):
        return [e for e in JournalReader(self.attempt_folder.journal).read() if kind is None or e.kind == kind]

    def wait_for_event(self, kind, **data):
        def find_event():
            has_ended = self.process.poll() is not None
            found = [event for event in self.events(kind) if data.items() <= event.data.items()]
            assert found or not has_ended, f"the agent ended before {kind} {data}"
            return found

        return wait_until(find_event)[0]

    def wait_for_file(self, name):
        """Wait until a step has created a file in the sandbox, and return its path."""
        return wait_until(lambda: list(self.scratch.glob(f"*/{name}")))[0]

    @property
    def end_data(self):
        (event,) = self.events("agent.ended")
        assert event is self.events()[-1] or event == self.events()[-1], "agent.ended must be the last event"
        return event.data

    def staged_name(self, name):
        """Return where an output is, below the destination, until the supervisor publishes it."""
        return staged_name("run-1", "0", self.events()[0].emitter, name)

    @property
    def failure(self):
        return self.end_data["failure"]

    @property
    def notices(self):
        return [event.data["text"] for event in self.events("notice")]

    def stage_data(self, name):
        (event,) = [e for e in self.events("stage.ended") if e.data["stage"] == name]
        return event.data

    @property
    def is_sandbox_removed(self):
        return not self.scratch.exists() or not list(self.scratch.iterdir())


def assert_failed(run, exit_code, kind, stage, *expected_texts):
    assert run.process.returncode == exit_code, (run.failure, run.stderr)
    assert run.end_data["exit_code"] == exit_code
    assert run.end_data["outcome"] == "failed"
    assert (run.failure["kind"], run.failure["stage"]) == (kind, stage)
    for text in expected_texts:
        assert text in run.failure["detail"]
    assert "\n" not in run.failure["detail"]
    assert run.failure["detail"] in run.stderr
    assert run.is_sandbox_removed
    assert run.stage_data("clean")["failure"] is None


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
