"""A virtual environment with webdataset, litdata and MosaicML's streaming, which shares the project's torch."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from testbed import debian

WHEEL_REQUIREMENTS = ("webdataset==1.0.2", "litdata==0.2.76", "mosaicml-streaming==0.13.0")


def peers_python() -> Path:
    """Return an interpreter with these systems and the packages of this one, installed on the first call."""
    folder = debian.cache_dir() / "stream-peers"
    with debian.file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            site = next(folder.glob("lib/python3*/site-packages"))
            (site / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
            subprocess.run([folder / "bin/python", "-m", "pip", "install", "-qq", *WHEEL_REQUIREMENTS], check=True)
            (folder / "complete").touch()
    return folder / "bin/python"
