"""An Apptainer image with this machine's Python, torch and curl, laid out like DeepSquare's example: `/.venv`, `/app`.

It is a folder of hard links if the file system allows, so it is built in seconds and takes no disk space.
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
    """Build the image. /app is empty; fill it before a container starts."""
    tree = apptainer.build_sandbox(folder)
    (tree / "app").mkdir()
    linked_files = [*_link_python(tree), *_link_torch(tree)]
    _link_curl(tree)
    for library in _shared_libraries(
        path for path in linked_files if ".so" in path.name or path.name.startswith("python")
    ):
        _link_or_copy(library, _path_in_image(tree, library))
    return tree


def _link_python(image_root: Path) -> Iterator[Path]:
    """Link Python at its own path, and create a virtual environment that refers to it."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_exec_prefix) / "bin" / version
    library_files = [path for path in (base / "lib" / version).rglob("*") if path.is_file()]
    for path in [
        program,
        *base.glob("lib/libpython*"),
        *(path for path in library_files if not _EXCLUDED_FILES.search(str(path))),
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
    for package in _iter_dependencies("torch", set()):
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and path.is_file() and not _EXCLUDED_FILES.search(str(file)):
                yield _link_or_copy(path, packages / file)


def _iter_dependencies(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Yield a package and its dependencies that are installed."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    seen.add(name)
    yield package
    for requirement in package.requires or ():
        required_name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        if required_name not in seen and "extra ==" not in requirement:
            yield from _iter_dependencies(required_name, seen)


def _link_curl(image_root: Path) -> None:
    """Link the testbed's curl with its libraries, which it loads by absolute path."""
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
    """Return the libraries that the loader would load for the files, and the loader itself."""
    output = subprocess.run(["ldd", *map(str, paths)], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE)
    own = (sys.prefix, sys.base_prefix) if sys.base_prefix != "/usr" else (sys.prefix,)
    return {Path(path) for path in libraries if not path.startswith(own)}


def _path_in_image(image_root: Path, path: Path) -> Path:
    return image_root / path.relative_to("/")


def _link_or_copy(source: Path, target: Path) -> Path:
    """Hard-link a file, or copy it to another file system. Return the source."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        try:
            os.link(source.resolve(), target)
        except OSError:  # another file system
            shutil.copy2(source, target)
    return source
