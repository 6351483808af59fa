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

VENV_DIR = Path(".venv")  # in the image
_EXCLUDED_FILES = re.compile(r"torch/(include|test)/|/(test|tests|site-packages|idlelib|ensurepip)/|\.(a|pyi)$")


def build_image(folder: Path) -> Path:
    """The image. /app is empty; what the test puts there must be in place before a container starts."""
    tree = apptainer.build_sandbox(folder)
    (tree / "app").mkdir()
    linked = [*_link_python(tree), *_link_torch(tree)]
    _link_curl(tree)
    for library in _shared_libraries(path for path in linked if ".so" in path.name or path.name.startswith("python")):
        _link_or_copy(library, _path_in_image(tree, library))
    return tree


def _link_python(image_root: Path) -> Iterator[Path]:
    """At its own path, with a virtual environment that refers to it."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_exec_prefix) / "bin" / version
    found = [path for path in (base / "lib" / version).rglob("*") if path.is_file()]
    for path in [
        program,
        *base.glob("lib/libpython*"),
        *(path for path in found if not _EXCLUDED_FILES.search(str(path))),
    ]:
        yield _link_or_copy(path.resolve(), _path_in_image(image_root, path))
    (image_root / VENV_DIR / "bin").mkdir(parents=True)
    (image_root / VENV_DIR / "bin/python3").symlink_to(program)
    (image_root / VENV_DIR / "pyvenv.cfg").write_text(
        f"home = {program.parent}\ninclude-system-site-packages = false\n"
    )


def _link_torch(image_root: Path) -> Iterator[Path]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = image_root / VENV_DIR / "lib" / version / "site-packages"
    for one in _iter_dependencies("torch", set()):
        for file in one.files or ():
            path = Path(str(one.locate_file(file)))
            if ".." not in file.parts and path.is_file() and not _EXCLUDED_FILES.search(str(file)):
                yield _link_or_copy(path, packages / file)


def _iter_dependencies(name: str, seen: set[str]) -> Iterator[Distribution]:
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
            yield from _iter_dependencies(other, seen)


def _link_curl(image_root: Path) -> None:
    """Debian's, of the testbed: it has its libraries beside it and knows them by their paths."""
    program = competitors.program_path("curl")
    prefix = program.parents[2]
    for path in prefix.rglob("*"):
        if path.is_symlink():
            target = _path_in_image(image_root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.readlink())
        elif path.is_file():
            _link_or_copy(path, _path_in_image(image_root, path))
    (image_root / "bin/curl").symlink_to(program)


def _shared_libraries(paths: Iterable[Path]) -> set[Path]:
    """What the loader would load for them, and the loader."""
    told = subprocess.run(["ldd", *map(str, paths)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)
    own = (sys.prefix, sys.base_prefix) if sys.base_prefix != "/usr" else (sys.prefix,)
    return {Path(path) for path in found if not path.startswith(own)}


def _path_in_image(image_root: Path, path: Path) -> Path:
    return image_root / path.relative_to("/")


def _link_or_copy(source: Path, target: Path) -> Path:
    """Returns the source."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        try:
            os.link(source.resolve(), target)
        except OSError:  # another file system
            shutil.copy2(source, target)
    return source
