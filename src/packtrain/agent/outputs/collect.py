"""Collect the outputs of a command that does not use $PACKTRAIN_OUTPUT: files in its working folder, and its logs."""

from __future__ import annotations

import fnmatch
import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packtrain.agent.outputs.symlinks import link_or_copy
from packtrain.agent.watched_files import FileVersion, file_version
from packtrain.errors import FailedError
from packtrain.plan import CollectedOutput, RunAction

_DANGLING_VERSION: FileVersion = (-1, -1)  # version of a symbolic link whose target does not exist


@contextmanager
def collect_outputs(
    action: RunAction, work_dir: Path, output: Path, has_outputs: Callable[[FailedError], bool] = lambda error: True
) -> Iterator[None]:
    """Run the command in the `with` block, then copy what `collect` names to the output folder.

    Outputs are collected also if the command fails. A missing file is no error here: `expect` tests what must exist.

    Args:
        action: The command's settings.
        work_dir: The working folder.
        output: The output folder.
        has_outputs: Returns whether there are outputs although the command failed.
    """
    versions_before = {
        rule.path: _match_versions(rule.path, work_dir) for rule in action.collect if is_pattern(rule.path)
    }
    try:
        yield
    except FailedError as error:
        if has_outputs(error):
            with suppress(OSError):  # the command's own failure is the one to report
                _collect_files(action.collect, versions_before, work_dir, output)
        raise
    _collect_files(action.collect, versions_before, work_dir, output)


def copy_logs(action: RunAction, logs: tuple[Path, Path], output: Path, task: str = "", append: bool = False) -> None:
    """Copy the logs of a command to the files that `stdout` and `stderr` name, possibly the same file.

    Args:
        action: The command's settings.
        logs: The log files of standard output and standard error.
        output: The output folder.
        task: Number of the task, a suffix of the file names if the step has several tasks.
        append: Keep what earlier executions of the job printed.
    """
    written: set[str] = set()
    for name, log in zip((action.stdout, action.stderr), logs):
        if not name or name.startswith("/"):
            continue
        target = output / (f"{name}.{task}" if task else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "rb") as source, open(target, "ab" if append or name in written else "wb") as sink:
            shutil.copyfileobj(source, sink)
        written.add(name)


def is_pattern(path: str) -> bool:
    return glob.has_magic(path)


def _collect_files(
    rules: tuple[CollectedOutput, ...], versions_before: dict[str, dict[str, FileVersion]], work_dir: Path, output: Path
) -> None:
    for rule in rules:
        if not is_pattern(rule.path):
            _copy_output(work_dir / rule.path, _output_path(rule, output))
            continue
        for name, version in _match_versions(rule.path, work_dir).items():
            if versions_before[rule.path].get(name) != version:
                _copy_output(work_dir / name, output / (rule.to or "") / Path(name).name)


def _output_path(rule: CollectedOutput, output: Path) -> Path:
    """Return the target of a rule. A trailing slash after a folder means its contents."""
    if rule.to or rule.path.endswith("/"):
        return output / rule.to
    return output / Path(rule.path).name


def _match_versions(pattern: str, work_dir: Path) -> dict[str, FileVersion]:
    """Return the matching files with their versions. Unlike in a shell, `*` also matches hidden files."""
    if "/" in pattern:
        names = glob.glob(f"{glob.escape(str(work_dir))}/{pattern}", recursive=True)  # noqa: PTH207 - takes any pattern
        paths = [Path(name) for name in names]
    else:
        paths = (
            [path for path in work_dir.iterdir() if fnmatch.fnmatchcase(path.name, pattern)]
            if work_dir.is_dir()
            else []
        )
    versions = {}
    for path in paths:
        with suppress(OSError):  # it was removed meanwhile
            if path.is_file():
                versions[path.relative_to(work_dir).as_posix()] = file_version(path)
            elif path.is_symlink() and not path.exists():
                versions[path.relative_to(work_dir).as_posix()] = _DANGLING_VERSION
    return versions


def _copy_output(path: Path, target: Path) -> None:
    """Copy a file or folder. Dangling links are copied as links, so that `symlinks` reports them."""
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
    with suppress(OSError):  # it exists already
        target.symlink_to(link)


def _find_dangling_links(folder: Path) -> list[Path]:
    paths = (Path(where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files))
    return [path for path in paths if path.is_symlink() and not path.exists()]
