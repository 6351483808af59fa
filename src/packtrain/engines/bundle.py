"""Builds the files that are sent to workers: `agent.pyz`, its launcher script and the transfer plugin.

The agent is one zip of the packages that it needs; the plugin is an executable zip. The same sources always give the
same bytes, so that the caches of a pool can store them. The sources of the installed packtrain are read as files, never
imported.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import packtrain
from packtrain.errors import PacktrainError
from packtrain.fileutil import atomic_writer

MAX_AGENT_BYTES = 450_000
_SHARED_MODULES = ("__init__.py", "errors.py", "backoff.py", "fileutil.py", "formatting.py")
WORKER_MODULES = (*_SHARED_MODULES, "condor/__init__.py", "condor/classads.py")
WORKER_PACKAGES = ("plan", "events", "transfer", "pixi", "agent", "torch", "stream")
PLUGIN_PACKAGES = ("plan", "events", "transfer", "plugin")

_SOURCE_ROOT = Path(packtrain.__file__).parent
_LAUNCHER_PATH = _SOURCE_ROOT / "agent" / "launch.sh"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can store
# os._exit ends the process even if a thread still waits for a dead connection.
_AGENT_MAIN = """import os
import sys

from packtrain.agent.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
# The Python that `env` finds may be too old for our sources: this part runs on any Python 3.
_PLUGIN_MAIN = """import os
import sys

if sys.version_info < (3, 9):
    for folder in (os.environ.get("PATH") or "/usr/local/bin:/usr/bin").split(":"):
        for minor in range(14, 8, -1):
            path = os.path.join(folder, "python3.%d" % minor)
            if os.access(path, os.X_OK):
                os.execv(path, [path] + sys.argv)
    sys.exit("packtrain: the transfer plugin needs Python 3.9 or newer, but this machine has none")

from packtrain.plugin.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
_SHEBANG = b"#!/usr/bin/env python3\n"


def build_agent(target: Path) -> None:
    """Write the agent's zip atomically. Raises PacktrainError if it is larger than `MAX_AGENT_BYTES`."""
    data = _build_zip(_zip_members(_AGENT_MAIN, worker_files()))
    if len(data) > MAX_AGENT_BYTES:
        raise PacktrainError(f"the agent has {len(data)} bytes, more than the maximum of {MAX_AGENT_BYTES}")
    _write_with_mode(target, data, 0o644)


def build_plugin(target: Path) -> None:
    """Write the transfer plugin, an executable zip, atomically."""
    _write_with_mode(target, _SHEBANG + _build_zip(_zip_members(_PLUGIN_MAIN, worker_files(PLUGIN_PACKAGES))), 0o755)


def _zip_members(main: str, files: Iterable[Path]) -> dict[str, bytes]:
    sources = {f"packtrain/{path.relative_to(_SOURCE_ROOT).as_posix()}": path.read_bytes() for path in files}
    return {"__main__.py": main.encode(), **sources}


def write_launcher(target: Path) -> None:
    """Write the shell script that finds a Python and starts `agent.pyz` from its own folder."""
    _write_with_mode(target, _LAUNCHER_PATH.read_bytes(), 0o755)


def worker_files(packages: Iterable[str] = WORKER_PACKAGES) -> Iterator[Path]:
    """Yield the source files that are sent to workers, in a fixed order."""
    yield from (_SOURCE_ROOT / name for name in WORKER_MODULES)
    for package in packages:
        yield from sorted((_SOURCE_ROOT / package).rglob("*.py"))


def _build_zip(members: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _ZIP_EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, on every system, so that the bytes are the same
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _write_with_mode(target: Path, data: bytes, mode: int) -> None:
    """Write a file atomically, with permissions that do not depend on the umask."""
    with atomic_writer(target) as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
