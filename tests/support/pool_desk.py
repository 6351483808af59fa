"""A user's folder on the access point of a pool, and what that user does there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.condor_pool import Pool
from tests.support.cli_runs import Desk

ENDED = ("\n005 (", "\n009 (")  # how lines of a user log begin that tell of an end, or of a removal
HELD = "\n012 ("


class PoolDesk(Desk):
    """As on a workstation, with `submit` for HTCondor's own files."""

    def __init__(self, pool: Pool, folder: Path, **environment: str) -> None:
        super().__init__(folder, **{**pool.environment, **environment})
        self.pool = pool

    def start(self, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            self.pool.command([sys.executable, "-m", "packtrain", *arguments]),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, text: str) -> str:
        """A constraint for the jobs of this submit file; their log is `log`."""
        path = self.write(f"log = log\n{text}", "job.sub")
        said = self.pool.run(["condor_submit", "-terse", path.name], cwd=self.folder).stdout
        return f"ClusterId == {said.split('.')[0]}"

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait(self) -> str:
        """Until the job of `log` has ended; the log."""
        self.await_some(lambda: any(event in self.log() for event in (*ENDED, HELD)))
        assert HELD not in self.log(), self.log()
        return self.log()
