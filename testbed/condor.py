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
_USER_MAPPING = ("--map-user=5", "--map-group=60")


def install_dir() -> Path:
    return debian.install(debian.cache_dir() / "condor", PACKAGE_SPEC)


def program_path(name: str) -> Path:
    """A command, a daemon, or a tool of the daemons."""
    found = (install_dir() / place / name for place in ("usr/bin", "usr/sbin", "usr/libexec/condor"))
    return next(path for path in found if path.exists())


def user_prefix() -> list[str]:
    """What makes the command after it one of an ordinary user, the same one in every namespace made so."""
    return ["unshare", "--user", *_USER_MAPPING, "--"] if os.geteuid() == 0 else []


def pid_namespace_prefix() -> list[str]:
    """The same, in a process namespace: all in it end when its first process ends."""
    user = _USER_MAPPING if os.geteuid() == 0 else ("--map-current-user",)
    return ["unshare", "--user", *user, "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def _post_install(new: Path, final: Path) -> None:
    """Debian leaves out the image by which the execution points find out that they can run SIF files."""
    tools = new / "usr/libexec/condor"
    image, content = tools / "exit_37.sif", tools / "singularity_test_sandbox"
    subprocess.run([apptainer.apptainer_path(), "-q", "build", image, content], check=True)
    shutil.rmtree(new / "usr/lib/python3")  # its bindings come from the package htcondor


PACKAGE_SPEC = debian.PackageSpec("forky", ("condor",), _post_install)


if __name__ == "__main__":
    os.execv(program_path(sys.argv[1]), sys.argv[1:])
