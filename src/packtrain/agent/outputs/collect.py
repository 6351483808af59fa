"""Outputs of a command that knows nothing of $PACKTRAIN_OUTPUT: what it leaves in its working folder, and its words."""

from __future__ import annotations

import fnmatch
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packtrain.agent.file_versions import Version, version_of
from packtrain.agent.outputs.symlinks import link_or_copy
from packtrain.errors import FailedError
from packtrain.plan import Collect, Run

_NOWHERE: Version = (-1, -1)  # of a link that shows nothing


@contextmanager
def collecting(action: Run, work: Path, output: Path) -> Iterator[None]:
    """Bring what `collect` names to the output folder, also when the command fails. What is missing is not brought:
    `expect` says what must be there."""
    before = {wanted.path: _matching(wanted.path, work) for wanted in action.collect if is_pattern(wanted.path)}
    try:
        yield
    except FailedError:
        with suppress(OSError):  # the command's own failure is the news
            _collect(action.collect, before, work, output)
        raise
    _collect(action.collect, before, work, output)


def keep_words(action: Run, logs: tuple[Path, Path], output: Path, task: str = "") -> None:
    """Copy the logs of a command to where `stdout` and `stderr` want them; into one file if that is the same."""
    taken: set[str] = set()
    for name, log in zip((action.stdout, action.stderr), logs):
        if not name:
            continue
        target = output / (f"{name}.{task}" if task else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "rb") as source, open(target, "ab" if name in taken else "wb") as sink:
            shutil.copyfileobj(source, sink)
        taken.add(name)


def is_pattern(path: str) -> bool:
    return glob.has_magic(path)


def _collect(wanted: tuple[Collect, ...], before: dict[str, dict[str, Version]], work: Path, output: Path) -> None:
    for one in wanted:
        if not is_pattern(one.path):
            _bring(work / one.path, _target(one, output))
            continue
        for name, version in _matching(one.path, work).items():
            if before[one.path].get(name) != version:
                _bring(work / name, output / (one.to or "") / Path(name).name)


def _target(one: Collect, output: Path) -> Path:
    """A slash behind a folder means: what is in it."""
    if one.to or one.path.endswith("/"):
        return output / one.to
    return output / Path(one.path).name


def _matching(pattern: str, work: Path) -> dict[str, Version]:
    """Files below the folder, with what tells whether they changed. Unlike a shell, `*` means hidden ones, too."""
    if "/" in pattern:
        names = glob.glob(f"{glob.escape(str(work))}/{pattern}", recursive=True)  # noqa: PTH207 - takes any pattern
        paths = [Path(name) for name in names]
    else:
        paths = [path for path in work.iterdir() if fnmatch.fnmatchcase(path.name, pattern)] if work.is_dir() else []
    found = {}
    for path in paths:
        with suppress(OSError):  # gone meanwhile
            if path.is_file():
                found[path.relative_to(work).as_posix()] = version_of(path)
            elif path.is_symlink() and not path.exists():
                found[path.relative_to(work).as_posix()] = _NOWHERE
    return found


def _bring(path: Path, target: Path) -> None:
    """Links to nowhere come as they are, so that they are told of (`links`)."""
    if target == path or not os.path.lexists(path):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _leave_link(path, target)
    elif path.is_dir():
        shutil.copytree(path, target, copy_function=link_or_copy, ignore_dangling_symlinks=True, dirs_exist_ok=True)
        for link in _dangling(path):
            _leave_link(link, target / link.relative_to(path))
    else:
        link_or_copy(str(path), str(target))


def _leave_link(link: Path, target: Path) -> None:
    with suppress(OSError):  # it is there already
        target.symlink_to(link)


def _dangling(folder: Path) -> list[Path]:
    found = (Path(where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files))
    return [path for path in found if path.is_symlink() and not path.exists()]
