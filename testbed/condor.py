"""The real HTCondor, daemons and commands, in a folder; see testbed/condor_pool.py for a pool of it.

`python -m testbed.condor condor_q ARGS…` runs one of its commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testbed import apptainer, debian

# HTCondor runs no jobs of root. In a user namespace root is an ordinary user, and its files are that user's.
_USER = ("--map-user=5", "--map-group=60")


def folder() -> Path:
    return debian.install(debian.cache() / "condor", RECIPE)


def program(name: str) -> Path:
    """A command, a daemon, or a tool of the daemons."""
    found = (folder() / place / name for place in ("usr/bin", "usr/sbin", "usr/libexec/condor"))
    return next(path for path in found if path.exists())


def as_user() -> list[str]:
    """What makes the command after it one of an ordinary user, the same one in every namespace made so."""
    return ["unshare", "--user", *_USER, "--"] if os.geteuid() == 0 else []


def in_own_processes() -> list[str]:
    """The same, in a process namespace: all in it end when its first process ends."""
    user = _USER if os.geteuid() == 0 else ("--map-current-user",)
    return ["unshare", "--user", *user, "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def _finish(new: Path, final: Path) -> None:
    """Debian leaves out the image by which the execution points find out that they can run SIF files."""
    tools = new / "usr/libexec/condor"
    image, content = tools / "exit_37.sif", tools / "singularity_test_sandbox"
    subprocess.run([apptainer.program(), "-q", "build", image, content], check=True)
    shutil.rmtree(new / "usr/lib/python3")  # its bindings come from the package htcondor


RECIPE = debian.Recipe("forky", ("condor",), _finish)


if __name__ == "__main__":
    os.execv(program(sys.argv[1]), sys.argv[1:])
