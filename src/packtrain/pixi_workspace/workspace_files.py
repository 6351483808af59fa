"""The files of a workspace that jobs get, and their archive."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packtrain.formatting import format_size
from packtrain.pixi_workspace.errors import PixiError, Problem

MAX_BYTES = 100_000_000
_MAX_LISTED = 3
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})


def collect_files(folder: Path, patterns: Sequence[str], always: Iterable[str]) -> tuple[str, ...]:
    """Return the workspace's files as relative paths, sorted.

    Args:
        folder: The folder of the workspace.
        patterns: Files, folders and globs; without any, what git does not ignore, or outside of git all that is not
            hidden.
        always: Files that are always included, if they exist.

    Raises:
        PixiError: A pattern matches nothing, or the files are too large to send with every job.
    """
    found = set(_match_patterns(folder, patterns) if patterns else _git_files(folder) or _visible_files(folder))
    found |= {name for name in always if (folder / name).is_file()}
    files = tuple(sorted(name for name in found if (folder / name).is_file()))
    _check_size(folder, files)
    return files


def _match_patterns(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        matches = sorted(folder.glob(pattern))
        if not matches:
            raise PixiError(Problem(f"{folder} has no file {pattern!r}", "correct `files`"))
        for path in matches:
            relative = path.relative_to(folder).as_posix()
            yield from (f"{relative}/{name}" for name in _visible_files(path)) if path.is_dir() else (relative,)


def _git_files(folder: Path) -> tuple[str, ...]:
    """Return the files that git tracks or would add; () outside of a repository."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        process = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return ()
    names = process.stdout.decode("utf-8", "surrogateescape").split("\0") if process.returncode == 0 else []
    return tuple(name for name in names if name and not _is_hidden(name))


def _visible_files(folder: Path) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in names:
            relative = Path(root, name).relative_to(folder).as_posix()
            if not _is_hidden(relative):
                yield relative


def _is_hidden(path: str) -> bool:
    """Return whether a part of the path begins with a dot, as `.pixi` and `.git`, or is a cache of a program."""
    return any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in path.split("/"))


def _check_size(folder: Path, files: Sequence[str]) -> None:
    sizes = {name: (folder / name).stat().st_size for name in files}
    total = sum(sizes.values())
    if total <= MAX_BYTES:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_MAX_LISTED]
    listed = ", ".join(f"{name} ({format_size(sizes[name])})" for name in largest)
    message = (
        f"the files of {folder} have {format_size(total)}, but at most {format_size(MAX_BYTES)} go with each job; "
        f"the largest are {listed}"
    )
    hint = "list what jobs need, for example `files: [src]`, and make data an input"
    raise PixiError(Problem(message, hint))


def build_archive(folder: Path, files: Iterable[str]) -> bytes:
    """Return a tar.gz of the files. Equal files give equal bytes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in files:
            data = (folder / name).read_bytes()
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(data), 0o755 if os.access(folder / name, os.X_OK) else 0o644
            tar.addfile(header, io.BytesIO(data))
    return buffer.getvalue()
