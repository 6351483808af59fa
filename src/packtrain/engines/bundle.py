"""Makes what rides to the worker: `agent.pyz`, one zip of the packages that the agent needs, and its
launcher; and the transfer plugin, a zip that is a program. The same sources always give the same bytes, so that a
pool's caches can keep them.

Reads the sources of the installed packtrain as files, and leaves out comments and docstrings (`stripped`); never
imports agent or plugin.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import packtrain
from packtrain.engines.strip_source import strip_source
from packtrain.errors import PacktrainError

MAX_AGENT_BYTES = 300_000
WORKER_MODULES = ("__init__.py", "errors.py", "fileutil.py", "condor/__init__.py", "condor/classads.py")
WORKER_PACKAGES = ("plan", "events", "transfer", "agent", "torch", "stream")
PLUGIN_PACKAGES = ("plan", "events", "transfer", "plugin")

_SOURCE_ROOT = Path(packtrain.__file__).parent
_LAUNCHER_PATH = _SOURCE_ROOT / "agent" / "launch.sh"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can tell
# The standard importer compiles each module twice: once to say under which name it would be loaded.
_ZIP_IMPORTER = """import zipimport


class Once(zipimport.zipimporter):
    def get_filename(self, fullname):
        path = "/".join((self.archive, self.prefix + fullname.rpartition(".")[2]))
        return path + ("/__init__.py" if self.is_package(fullname) else ".py")


def once(path):
    if not path.startswith(archive):
        raise ImportError(path)
    return Once(path)


archive = sys.path[0]
sys.path_hooks.insert(0, once)
sys.path_importer_cache.pop(archive, None)
"""
# What is loaded stays: to look for garbage among it costs a twentieth of the start.
# Once the attempt is over nothing keeps the process: a thread may still hang in a dead connection.
_AGENT_MAIN = """import gc
import os
import sys

gc.disable()
{once}
from packtrain.agent.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
# What `env` finds may be too old even to read our sources: this part is written for any Python 3.
_PLUGIN_MAIN = """import os
import sys

if sys.version_info < (3, 9):
    for folder in (os.environ.get("PATH") or "/usr/local/bin:/usr/bin").split(":"):
        for minor in range(14, 8, -1):
            path = os.path.join(folder, "python3.%d" % minor)
            if os.access(path, os.X_OK):
                os.execv(path, [path] + sys.argv)
    sys.exit("packtrain: the transfer plugin needs Python 3.9 or newer, and there is none on this machine")

{once}
from packtrain.plugin.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
_SHEBANG = b"#!/usr/bin/env python3\n"


def build_agent(target: Path) -> None:
    """Write the agent's zip, complete or not at all."""
    data = _build_zip(_zip_members(_AGENT_MAIN, worker_files()))
    if len(data) > MAX_AGENT_BYTES:
        raise PacktrainError(
            f"the agent has {len(data)} bytes, more than the {MAX_AGENT_BYTES} that every job may carry"
        )
    _write_atomic(target, data, 0o644)


def build_plugin(target: Path) -> None:
    """Write the transfer plugin, a program."""
    _write_atomic(target, _SHEBANG + _build_zip(_zip_members(_PLUGIN_MAIN, worker_files(PLUGIN_PACKAGES))), 0o755)


def _zip_members(main: str, files: Iterable[Path]) -> dict[str, bytes]:
    texts = {
        f"packtrain/{path.relative_to(_SOURCE_ROOT).as_posix()}": path.read_text(encoding="utf-8") for path in files
    }
    sources = {name: strip_source(text).encode() for name, text in texts.items()}
    return {"__main__.py": main.replace("{once}", _ZIP_IMPORTER).encode(), **sources}


def write_launcher(target: Path) -> None:
    """Write the shell script that finds a Python and starts `agent.pyz`, which lies beside it."""
    _write_atomic(target, _LAUNCHER_PATH.read_bytes(), 0o755)


def worker_files(packages: Iterable[str] = WORKER_PACKAGES) -> Iterator[Path]:
    """The sources that ride along, in a fixed order."""
    yield from (_SOURCE_ROOT / name for name in WORKER_MODULES)
    for package in packages:
        yield from sorted((_SOURCE_ROOT / package).rglob("*.py"))


def _build_zip(members: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _ZIP_EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, whatever wrote it
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _write_atomic(target: Path, data: bytes, mode: int) -> None:
    temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
    temporary.write_bytes(data)
    temporary.chmod(mode)
    temporary.replace(target)
