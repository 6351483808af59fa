"""A real HTCondor, daemons and commands, in a folder. testbed/condor_pool.py runs a pool with it.

`python -m testbed.condor condor_q ARGS…` runs one of its commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testbed import apptainer, debian

# HTCondor refuses jobs of root. In a user namespace, root and its files appear as an ordinary user's.
_USER_MAPPING = ("--map-user=5", "--map-group=60")


def install_dir() -> Path:
    """Return the folder of HTCondor, installed if needed."""
    return debian.install(debian.cache_dir() / "condor", PACKAGE_SPEC)


def program_path(name: str) -> Path:
    """Return the path of a command, a daemon or a helper program."""
    candidates = (install_dir() / folder / name for folder in ("usr/bin", "usr/sbin", "usr/libexec/condor"))
    return next(path for path in candidates if path.exists())


def user_prefix() -> list[str]:
    """Return a command prefix that runs as an ordinary user, the same user in every namespace."""
    return ["unshare", "--user", *_USER_MAPPING, "--"] if os.geteuid() == 0 else []


def pid_namespace_prefix() -> list[str]:
    """Return a prefix that also enters a PID namespace, where all processes end with the first one."""
    user = _USER_MAPPING if os.geteuid() == 0 else ("--map-current-user",)
    return ["unshare", "--user", *user, "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def _post_install(new: Path, final: Path) -> None:
    """Build the image that execution points use to test for SIF support, which Debian does not ship."""
    tools = new / "usr/libexec/condor"
    image, content = tools / "exit_37.sif", tools / "singularity_test_sandbox"
    subprocess.run([apptainer.apptainer_path(), "-q", "build", image, content], check=True)
    shutil.rmtree(new / "usr/lib/python3")  # the Python bindings come from the package htcondor


PACKAGE_SPEC = debian.PackageSpec("forky", ("condor",), _post_install)


if __name__ == "__main__":
    os.execv(program_path(sys.argv[1]), sys.argv[1:])
