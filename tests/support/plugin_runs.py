"""Runs the plugin as HTCondor's starter does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from packtrain.condor.classads import format_new_classad, parse_new_classads
from packtrain.engines.bundle import build_plugin


class PluginRun:
    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.program = folder, folder / "packtrain-plugin.pyz"
        self.outfile = folder / ".plugin.out"
        self.environment = {"PATH": os.environ["PATH"], **environment}
        build_plugin(self.program)
        self.set_retry_timeout(1)

    def set_retry_timeout(self, retry_timeout_s: float) -> None:
        (self.folder / "job.ad").write_text(f"PacktrainRetryTimeout = {retry_timeout_s}\n")
        self.environment["_CONDOR_JOB_AD"] = str(self.folder / "job.ad")

    def start(self, *pairs, upload=False):
        """`pairs` of an address and a local path. The outfile has room for answers, as HTCondor makes it."""
        ads = [{"LocalFileName": str(path), "Url": url} for url, path in pairs]
        (self.folder / ".plugin.in").write_text("".join(map(format_new_classad, ads)))
        self.outfile.write_text(" " * 19264)
        command = [self.program, "-infile", self.folder / ".plugin.in", "-outfile", self.outfile]
        command += ["-upload"] if upload else []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment)
        return self

    def wait_for_results(self):
        """The result ads."""
        _, self.stderr = self.process.communicate(timeout=60)
        self.exit_code = self.process.returncode
        assert self.outfile.stat().st_size >= 19264, "its room is kept"
        return parse_new_classads(self.outfile.read_text())

    def __call__(self, *pairs, upload=False):
        return self.start(*pairs, upload=upload).wait_for_results()

    def send_signal(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        return self.wait_for_results()
