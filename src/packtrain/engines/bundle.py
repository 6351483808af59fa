"""Makes what rides to the worker: `agent.pyz`, one zip of the packages that the agent needs, and its
launcher. The same sources always give the same bytes, so that a pool's caches can keep them.

Reads the sources of the installed packtrain as files; never imports the agent.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import packtrain
from packtrain.errors import PacktrainError

MOST_BYTES = 300_000
WORKER_MODULES = ("__init__.py", "errors.py")
WORKER_PACKAGES = ("plan", "events", "transfer", "agent", "torch")

_SOURCE = Path(packtrain.__file__).parent
_LAUNCHER = _SOURCE / "agent" / "launch.sh"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can tell
# Once the attempt is over nothing keeps the process: a thread may still hang in a dead connection.
_MAIN = """import os
import sys

from packtrain.agent.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


def build_agent(target: Path) -> None:
    """Write the agent's zip, complete or not at all."""
    members = {"__main__.py": _MAIN.encode()}
    members.update((f"packtrain/{path.relative_to(_SOURCE).as_posix()}", path.read_bytes()) for path in worker_files())
    data = _zip(members)
    if len(data) > MOST_BYTES:
        raise PacktrainError(f"the agent has {len(data)} bytes, more than the {MOST_BYTES} that every job may carry")
    _write(target, data, 0o644)


def write_launcher(target: Path) -> None:
    """Write the shell script that finds a Python and starts `agent.pyz`, which lies beside it."""
    _write(target, _LAUNCHER.read_bytes(), 0o755)


def worker_files() -> Iterator[Path]:
    """The sources that ride along, in a fixed order."""
    yield from (_SOURCE / name for name in WORKER_MODULES)
    for package in WORKER_PACKAGES:
        yield from sorted((_SOURCE / package).rglob("*.py"))


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, whatever wrote it
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _write(target: Path, data: bytes, mode: int) -> None:
    temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
    temporary.write_bytes(data)
    temporary.chmod(mode)
    temporary.replace(target)
