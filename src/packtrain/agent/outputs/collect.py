"""Outputs of a command that knows nothing of $PACKTRAIN_OUTPUT: what it leaves in its working folder, and its words."""

from __future__ import annotations

import fnmatch
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packtrain.agent.outputs.symlinks import link_or_copy
from packtrain.agent.watched_files import FileVersion, file_version
from packtrain.errors import FailedError
from packtrain.plan import CollectedOutput, RunAction

_DANGLING_VERSION: FileVersion = (-1, -1)  # of a link that shows nothing


@contextmanager
def collect_outputs(action: RunAction, work_dir: Path, output: Path) -> Iterator[None]:
    """Bring what `collect` names to the output folder, also when the command fails. What is missing is not brought:
    `expect` says what must be there."""
    before = {
        wanted.path: _match_versions(wanted.path, work_dir) for wanted in action.collect if is_pattern(wanted.path)
    }
    try:
        yield
    except FailedError:
        with suppress(OSError):  # the command's own failure is the news
            _collect_files(action.collect, before, work_dir, output)
        raise
    _collect_files(action.collect, before, work_dir, output)


def copy_logs(action: RunAction, logs: tuple[Path, Path], output: Path, task: str = "") -> None:
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


def _collect_files(
    rules: tuple[CollectedOutput, ...], versions_before: dict[str, dict[str, FileVersion]], work_dir: Path, output: Path
) -> None:
    for one in rules:
        if not is_pattern(one.path):
            _copy_output(work_dir / one.path, _output_path(one, output))
            continue
        for name, version in _match_versions(one.path, work_dir).items():
            if versions_before[one.path].get(name) != version:
                _copy_output(work_dir / name, output / (one.to or "") / Path(name).name)


def _output_path(rule: CollectedOutput, output: Path) -> Path:
    """A slash behind a folder means: what is in it."""
    if rule.to or rule.path.endswith("/"):
        return output / rule.to
    return output / Path(rule.path).name


def _match_versions(pattern: str, work_dir: Path) -> dict[str, FileVersion]:
    """Files below the folder, with what tells whether they changed. Unlike a shell, `*` means hidden ones, too."""
    if "/" in pattern:
        names = glob.glob(f"{glob.escape(str(work_dir))}/{pattern}", recursive=True)  # noqa: PTH207 - takes any pattern
        paths = [Path(name) for name in names]
    else:
        paths = (
            [path for path in work_dir.iterdir() if fnmatch.fnmatchcase(path.name, pattern)]
            if work_dir.is_dir()
            else []
        )
    found = {}
    for path in paths:
        with suppress(OSError):  # gone meanwhile
            if path.is_file():
                found[path.relative_to(work_dir).as_posix()] = file_version(path)
            elif path.is_symlink() and not path.exists():
                found[path.relative_to(work_dir).as_posix()] = _DANGLING_VERSION
    return found


def _copy_output(path: Path, target: Path) -> None:
    """Links to nowhere come as they are, so that they are told of (`links`)."""
    if target == path or not os.path.lexists(path):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _copy_dangling_link(path, target)
    elif path.is_dir():
        shutil.copytree(path, target, copy_function=link_or_copy, ignore_dangling_symlinks=True, dirs_exist_ok=True)
        for link in _find_dangling_links(path):
            _copy_dangling_link(link, target / link.relative_to(path))
    else:
        link_or_copy(str(path), str(target))


def _copy_dangling_link(link: Path, target: Path) -> None:
    with suppress(OSError):  # it is there already
        target.symlink_to(link)


def _find_dangling_links(folder: Path) -> list[Path]:
    found = (Path(where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files))
    return [path for path in found if path.is_symlink() and not path.exists()]
