"""Runs the transfer plugin as HTCondor's starter does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from packtrain.condor.classads import format_new_classad, parse_new_classads
from packtrain.engines.bundle import build_plugin


class PluginRun:
    """The plugin in a job's folder. Call it with pairs of URL and local path to get the result ads."""

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
        """Start the plugin on pairs of URL and local path. As in HTCondor, the outfile is preallocated."""
        ads = [{"LocalFileName": str(path), "Url": url} for url, path in pairs]
        (self.folder / ".plugin.in").write_text("".join(map(format_new_classad, ads)))
        self.outfile.write_text(" " * 19264)
        command = [self.program, "-infile", self.folder / ".plugin.in", "-outfile", self.outfile]
        command += ["-upload"] if upload else []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment)
        return self

    def wait_for_results(self):
        """Wait for the plugin to exit and return the result ads."""
        _, self.stderr = self.process.communicate(timeout=60)
        self.exit_code = self.process.returncode
        assert self.outfile.stat().st_size >= 19264, "the preallocated size is kept"
        return parse_new_classads(self.outfile.read_text())

    def __call__(self, *pairs, upload=False):
        return self.start(*pairs, upload=upload).wait_for_results()

    def send_signal(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        return self.wait_for_results()
