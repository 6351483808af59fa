"""A user's folder on the access point of a test pool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.condor_pool import CondorPool
from tests.support.cli_runs import Workspace

END_EVENT_PREFIXES = ("\n005 (", "\n009 (")  # beginnings of log events that end a job
HELD_EVENT_PREFIX = "\n012 ("


class PoolWorkspace(Workspace):
    """A workspace whose commands run as a user of the pool; `condor_submit` submits plain submit files."""

    def __init__(self, pool: CondorPool, folder: Path, **environment: str) -> None:
        super().__init__(folder, **{**pool.user_environment, **environment})
        self.pool = pool

    def start(self, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            self.pool.user_command([sys.executable, "-m", "packtrain", *arguments]),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def condor_submit(self, submit_text: str) -> str:
        """Submit a submit file whose log is `log`, and return a constraint for its jobs."""
        path = self.write_file(f"log = log\n{submit_text}", "job.sub")
        stdout = self.pool.run_as_user(["condor_submit", "-terse", path.name], cwd=self.folder).stdout
        return f"ClusterId == {stdout.split('.')[0]}"

    def read_user_log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for_end(self) -> str:
        """Wait until the job of `condor_submit` has ended, and return its log."""
        self.wait_for(lambda: any(event in self.read_user_log() for event in (*END_EVENT_PREFIXES, HELD_EVENT_PREFIX)))
        assert HELD_EVENT_PREFIX not in self.read_user_log(), self.read_user_log()
        return self.read_user_log()
