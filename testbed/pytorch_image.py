"""An image for Apptainer with this machine's Python, torch and curl in it, as DeepSquare's example has: `/.venv` and
`/app`.

It is a folder of hard links where the file system allows, so that it is made in seconds and takes no room.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from testbed import apptainer, competitors

VENV = Path(".venv")  # in the image
_NOT_NEEDED = re.compile(r"torch/(include|test)/|/(test|tests|site-packages|idlelib|ensurepip)/|\.(a|pyi)$")


def make(folder: Path) -> Path:
    """The image. /app is empty; what the test puts there must be in place before a container starts."""
    tree = apptainer.make_folder(folder)
    (tree / "app").mkdir()
    linked = [*_link_python(tree), *_link_torch(tree)]
    _link_curl(tree)
    for library in _libraries(path for path in linked if ".so" in path.name or path.name.startswith("python")):
        _link(library, _inside(tree, library))
    return tree


def _link_python(tree: Path) -> Iterator[Path]:
    """At its own path, with a virtual environment that refers to it."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_exec_prefix) / "bin" / version
    found = [path for path in (base / "lib" / version).rglob("*") if path.is_file()]
    for path in [program, *base.glob("lib/libpython*"), *(path for path in found if not _NOT_NEEDED.search(str(path)))]:
        yield _link(path.resolve(), _inside(tree, path))
    (tree / VENV / "bin").mkdir(parents=True)
    (tree / VENV / "bin/python3").symlink_to(program)
    (tree / VENV / "pyvenv.cfg").write_text(f"home = {program.parent}\ninclude-system-site-packages = false\n")


def _link_torch(tree: Path) -> Iterator[Path]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tree / VENV / "lib" / version / "site-packages"
    for one in _needed("torch", set()):
        for file in one.files or ():
            path = Path(str(one.locate_file(file)))
            if ".." not in file.parts and path.is_file() and not _NOT_NEEDED.search(str(file)):
                yield _link(path, packages / file)


def _needed(name: str, seen: set[str]) -> Iterator[Distribution]:
    """The package and what it needs in turn, as far as it is installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    seen.add(name)
    yield found
    for wanted in found.requires or ():
        other = re.split(r"[^A-Za-z0-9._-]", wanted)[0]
        if other not in seen and "extra ==" not in wanted:
            yield from _needed(other, seen)


def _link_curl(tree: Path) -> None:
    """Debian's, of the testbed: it has its libraries beside it and knows them by their paths."""
    program = competitors.program("curl")
    prefix = program.parents[2]
    for path in prefix.rglob("*"):
        if path.is_symlink():
            target = _inside(tree, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.readlink())
        elif path.is_file():
            _link(path, _inside(tree, path))
    (tree / "bin/curl").symlink_to(program)


def _libraries(paths: Iterable[Path]) -> set[Path]:
    """What the loader would load for them, and the loader."""
    told = subprocess.run(["ldd", *map(str, paths)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)
    own = (sys.prefix, sys.base_prefix) if sys.base_prefix != "/usr" else (sys.prefix,)
    return {Path(path) for path in found if not path.startswith(own)}


def _inside(tree: Path, path: Path) -> Path:
    return tree / path.relative_to("/")


def _link(source: Path, target: Path) -> Path:
    """Returns the source."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        try:
            os.link(source.resolve(), target)
        except OSError:  # another file system
            shutil.copy2(source, target)
    return source
