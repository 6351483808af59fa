"""Run the real `packtrain` command in a temporary folder with its own store, and inspect the results."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from packtrain.events import JournalReader, kinds
from tests.support.waiting import wait_until

TIMEOUT_S = 300  # generous, for a machine under load


class Workspace:
    """A user's folder with workflow files, runs and the store."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PACKTRAIN")}
        self.environment = {**inherited, "PACKTRAIN_STORE": str(folder / "store.db"), "COLUMNS": "200", **environment}

    def write_file(self, text: str, name: str = "workflow.yaml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def start(self, *arguments: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "packtrain", *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *arguments: object, exit_code: int | None = 0) -> str:
        """Run a command and return its standard output. Fail if the exit code is not `exit_code` (None: any)."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert exit_code in (None, process.returncode), f"{arguments}: exit {process.returncode}\n{out}\n{err}"
        self.exit_code, self.stderr = process.returncode, err
        return out

    def run_in_terminal(self, *arguments: object, on_output=lambda output: None) -> str:
        """Run a command in a terminal with colors and return its output and its messages; `exit_code` is set.

        Args:
            arguments: The command.
            on_output: Called with the output so far, whenever there is more.
        """
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "packtrain", *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, "COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        output = b""
        with contextlib.suppress(OSError):  # the terminal has no more writers
            while data := os.read(leader, 65536):
                output += data
                on_output(output)
        os.close(leader)
        self.exit_code = process.wait(timeout=TIMEOUT_S)
        return output.decode()

    def run_json(self, *arguments: object, exit_code: int | None = 0):
        """Run a command with --json and return the parsed output."""
        return json.loads(self.run(*arguments, "--json", exit_code=exit_code))

    def run_folder(self) -> Path:
        """Wait for the only run and return its folder."""
        (plan,) = self.wait_for(lambda: list((self.folder / ".packtrain" / "runs").glob("*/plan.json")))
        return plan.parent

    def attempt_folders(self) -> list[Path]:
        """Return the attempt folders of the only run, oldest first."""
        return sorted(self.run_folder().glob("jobs/*/attempts/*"), key=lambda path: path.stat().st_mtime)

    def wait_for(self, condition, timeout_s=TIMEOUT_S):
        """Call `condition` until it returns something true, and return that."""
        return wait_until(condition, timeout_s, interval_s=0.005)

    def read_events(self, kind: str | None = None):
        """Return the events in all journals, of one kind if given."""
        paths = (self.folder / ".packtrain" / "runs").glob("*/jobs/*/attempts/*/journal.jsonl")
        events = [event for path in paths for event in JournalReader(path).read()]
        return [event for event in events if kind in (None, event.kind)]

    def wait_for_stage(self, stage: str):
        return self.wait_for(lambda: [e for e in self.read_events(kinds.STAGE_STARTED) if e.data["stage"] == stage])[0]

    def agent_pid(self) -> int:
        (event,) = self.wait_for(lambda: self.read_events(kinds.AGENT_STARTED)[-1:])
        return event.data["pid"]

    def kill_agent(self) -> None:
        os.kill(self.agent_pid(), signal.SIGKILL)
