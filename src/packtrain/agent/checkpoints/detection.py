"""Detect checkpoints that a program saved, and copy them to the staging folder.

A program announces a checkpoint with the line `{"path": …, "step": …, "epoch": …}` in the file $PACKTRAIN_CHECKPOINTS.
An announced file was renamed into place and is never written again, so a hard link preserves it. A file that was not
announced may be rewritten in place: it is copied once it is stable, and the copy counts only if the file did not change
meanwhile.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.agent.checkpoints.upload_planner import CheckpointSnapshot
from packtrain.agent.watched_files import FileVersion, TailedFile, file_version, match_files, walk_files
from packtrain.fileutil import is_temporary_name
from packtrain.transfer.reflink import clone_file

_MAX_LINK_TRIES = 20


@dataclass(frozen=True)
class SaveNotice:
    """One line of $PACKTRAIN_CHECKPOINTS."""

    path: str  # absolute, or relative to the output folder
    step: int
    epoch: int | None


class SaveNoticeReader:
    """Read new complete lines of $PACKTRAIN_CHECKPOINTS, and count the lines that are not notices."""

    def __init__(self, path: Path) -> None:
        self._file = TailedFile(path)
        self.n_ignored = 0

    def read(self) -> list[SaveNotice]:
        parsed = [parse_save_notice(line) for line in self._file.read_lines()]
        self.n_ignored += parsed.count(None)
        return [notice for notice in parsed if notice is not None]


def parse_save_notice(line: bytes) -> SaveNotice | None:
    """Return the notice, or None if the line is not a valid one."""
    try:
        raw = json.loads(line)
        step, epoch, path = raw["step"], raw.get("epoch"), raw["path"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if (
        not isinstance(path, str)
        or not path
        or not _is_valid_count(step)
        or not (epoch is None or _is_valid_count(epoch))
    ):
        return None
    return SaveNotice(path, step, epoch)


def _is_valid_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


class StableFiles:
    """Find new versions of the files that match a pattern, once none of them changes any more.

    A matching folder is taken completely, because programs read it completely. Of several matching files, such as
    `ckpt-*.pt`, only the changed ones are taken. The matches of several patterns are one checkpoint.
    """

    def __init__(self, patterns: Sequence[str], folder: Path, known_versions: Mapping[str, FileVersion]) -> None:
        self._patterns, self._folder = patterns, folder
        self._taken_versions: dict[str, FileVersion] = dict(known_versions)  # staged before, or restored
        self._last_scan: list[dict[str, FileVersion]] = []

    def poll(self) -> dict[str, FileVersion]:
        """Return the new versions by name if nothing changed since the previous poll, else nothing."""
        scan = self._scan()
        is_stable, self._last_scan = scan == self._last_scan, scan
        return self._new_versions(scan) if is_stable else {}

    def final_poll(self, stable_s: float) -> dict[str, FileVersion]:
        """Return the new versions that were not modified in the last `stable_s` seconds.

        A program that was killed may have been writing until then.
        """
        before = time.time_ns() - int(stable_s * 1e9)
        return self._new_versions([group for group in self._scan() if all(v[1] <= before for v in group.values())])

    def _new_versions(self, groups: Sequence[Mapping[str, FileVersion]]) -> dict[str, FileVersion]:
        changed = (group for group in groups if any(self._taken_versions.get(name) != group[name] for name in group))
        return {name: version for group in changed for name, version in group.items()}

    def mark_taken(self, versions: Mapping[str, FileVersion]) -> None:
        self._taken_versions.update(versions)

    def _scan(self) -> list[dict[str, FileVersion]]:
        matches = [match for pattern in self._patterns for match in match_files(pattern, self._folder)]
        groups = [self._match_versions(match) for match in matches]
        return groups if len(self._patterns) == 1 else [{n: v for group in groups for n, v in group.items()}]

    def _match_versions(self, match: Path) -> dict[str, FileVersion]:
        versions = {name: _version_or_none(self._folder / name) for name in _complete_names(match, self._folder)}
        return {name: version for name, version in versions.items() if version is not None and version[0]}


class WholeCheckpoint:
    """Find the files of a checkpoint that consists of everything that matches, as HTCondor's self-checkpointing has it.

    The program says when its files are complete, so that empty files count and all files are taken together. Inputs
    that the program did not change are not part of it.
    """

    def __init__(self, patterns: Sequence[str], folder: Path, restored_versions: Mapping[str, FileVersion]) -> None:
        self._patterns, self._folder = patterns, folder
        self._restored_versions = restored_versions
        found = {pattern: self._match(pattern) for pattern in patterns if glob.has_magic(pattern)}
        self._inputs = {
            name: version
            for versions in found.values()
            for name, version in versions.items()
            if name not in restored_versions
        }

    def changed_files(self) -> dict[str, FileVersion]:
        """Return all files of the checkpoint with their versions; nothing if it is still the restored one."""
        found = {name: version for pattern in self._patterns for name, version in self._match(pattern).items()}
        files = {name: version for name, version in found.items() if self._inputs.get(name) != version}
        return {} if files == self._restored_versions else files

    def missing_names(self) -> list[str]:
        """Return the paths that match nothing."""
        return [pattern for pattern in self._patterns if not match_files(pattern, self._folder)]

    def _match(self, pattern: str) -> dict[str, FileVersion]:
        names = matching_names(pattern, self._folder)
        versions = {name: _version_or_none(self._folder / name) for name in sorted(names)}
        return {name: version for name, version in versions.items() if version is not None}


class StagingDir:
    """A folder of the sandbox that holds snapshots until they are uploaded."""

    def __init__(self, output: Path, folder: Path) -> None:
        self._output, self._folder, self._n_staged = output, folder, 0

    def stage_noticed(self, notice: SaveNotice) -> CheckpointSnapshot | None:
        """Link an announced checkpoint; None if it does not exist or is not below the output folder."""
        root = Path(os.path.normpath(self._output / notice.path))
        if self._output not in root.parents:
            return None
        names = _complete_names(root, self._output)
        return self._stage(names, root.relative_to(self._output).as_posix(), notice.step, notice.epoch, _link_or_copy)

    def stage_stable(self, versions: Mapping[str, FileVersion], step: int) -> CheckpointSnapshot | None:
        """Copy files that were not announced; None if one of them changed meanwhile."""
        names = sorted(versions)
        snapshot = self._stage(names, _common_path(names), step, None, _copy)
        if snapshot is None or all(_version_or_none(self._output / name) == versions[name] for name in names):
            return snapshot
        self.remove(snapshot)
        return None

    def _stage(
        self, names: Sequence[str], path: str, step: int, epoch: int | None, copy_file: Callable[[Path, Path], None]
    ) -> CheckpointSnapshot | None:
        started, self._n_staged = time.monotonic(), self._n_staged + 1
        folder, versions = self._folder / str(self._n_staged), []
        try:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                versions.append(file_version(self._output / name))
                copy_file(self._output / name, folder / name)
        except FileNotFoundError:  # the program removed it
            shutil.rmtree(folder, ignore_errors=True)
            return None
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return CheckpointSnapshot(folder, tuple(names), path, step, epoch, tuple(versions), started) if names else None

    @staticmethod
    def remove(snapshot: CheckpointSnapshot) -> None:
        shutil.rmtree(snapshot.folder, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        _link_with_retries(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no hard links, or source and target are on different ones
        _copy(source, target)


def _link_with_retries(source: Path, target: Path) -> None:
    """Retry, because link() fails with ENOENT if another file is renamed onto `source` at that moment."""
    for tries_left in reversed(range(_MAX_LINK_TRIES)):
        try:
            os.link(source, target)
            break
        except FileNotFoundError:
            if not tries_left or not os.path.lexists(source):
                raise


def _copy(source: Path, target: Path) -> None:
    clone_file(source, target, lambda: None)


def _iter_files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in walk_files(path) if file.is_file())
    elif path.is_file():
        yield path


def _common_path(names: list[str]) -> str:
    return names[0] if len(names) == 1 else os.path.commonpath(names) or "."


def matching_names(pattern: str, folder: Path) -> set[str]:
    """Return the names of all files that the pattern matches, also those inside matching folders."""
    return {name for match in match_files(pattern, folder) for name in _complete_names(match, folder)}


def _complete_names(path: Path, folder: Path) -> list[str]:
    """Return the name of a file, or of all files below a folder, without temporary files."""
    names = (file.relative_to(folder).as_posix() for file in _iter_files(path))
    return [name for name in names if not is_temporary_name(name)]


def _version_or_none(path: Path) -> FileVersion | None:
    with suppress(OSError):
        return file_version(path)
    return None
