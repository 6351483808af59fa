"""A user's folder on the access point of a pool, and what that user does there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.condor_pool import CondorPool
from tests.support.cli_runs import Workspace

END_EVENT_PREFIXES = ("\n005 (", "\n009 (")  # how lines of a user log begin that tell of an end, or of a removal
HELD_EVENT_PREFIX = "\n012 ("


class PoolWorkspace(Workspace):
    """As on a workstation, with `submit` for HTCondor's own files."""

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
        """A constraint for the jobs of this submit file; their log is `log`."""
        path = self.write_file(f"log = log\n{submit_text}", "job.sub")
        said = self.pool.run_as_user(["condor_submit", "-terse", path.name], cwd=self.folder).stdout
        return f"ClusterId == {said.split('.')[0]}"

    def read_user_log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for_end(self) -> str:
        """Until the job of `log` has ended; the log."""
        self.wait_for(lambda: any(event in self.read_user_log() for event in (*END_EVENT_PREFIXES, HELD_EVENT_PREFIX)))
        assert HELD_EVENT_PREFIX not in self.read_user_log(), self.read_user_log()
        return self.read_user_log()
