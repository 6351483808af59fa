"""Notices what a program saved, and sets it aside: announced files at once, others when they have become quiet.

An announcement is a line `{"path": …, "step": …, "epoch": …}` in the file $PACKTRAIN_CHECKPOINTS; what it names was
renamed into place and is never written again, so that a hard link holds it. What nobody announced may be written
again in place: it is copied, and counts only if it did not change meanwhile.
"""

from __future__ import annotations

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
from packtrain.agent.outputs.inventory import match_files, walk_files
from packtrain.agent.watched_files import FileVersion, TailedFile, file_version, is_temporary_name
from packtrain.transfer.reflink import clone_file

_MAX_LINK_TRIES = 20


@dataclass(frozen=True)
class SaveNotice:
    path: str
    step: int
    epoch: int | None


class SaveNoticeReader:
    """New complete lines of the file; what is no announcement is counted."""

    def __init__(self, path: Path) -> None:
        self._file = TailedFile(path)
        self.n_ignored = 0

    def read(self) -> list[SaveNotice]:
        parsed = [parse_save_notice(line) for line in self._file.read_lines()]
        self.n_ignored += parsed.count(None)
        return [one for one in parsed if one is not None]


def parse_save_notice(line: bytes) -> SaveNotice | None:
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
    """What the pattern matches: which of it is new, once all of it rests. A folder is taken as a whole, since programs
    read it so; of files beside each other, such as `ckpt-*.pt`, those are taken that changed."""

    def __init__(self, pattern: str, folder: Path, known_versions: Mapping[str, FileVersion]) -> None:
        self._pattern, self._folder = pattern, folder
        self._taken_versions: dict[str, FileVersion] = dict(
            known_versions
        )  # what is in a generation already, or was restored
        self._last_scan: list[dict[str, FileVersion]] = []

    def poll(self) -> dict[str, FileVersion]:
        """What is new, if nothing changed since the look before."""
        now = self._scan()
        rests, self._last_scan = now == self._last_scan, now
        return self._new_versions(now) if rests else {}

    def final_poll(self, stable_s: float) -> dict[str, FileVersion]:
        """What is new and was not touched for so long: a program that was killed may have been writing."""
        before = time.time_ns() - int(stable_s * 1e9)
        return self._new_versions([thing for thing in self._scan() if all(v[1] <= before for v in thing.values())])

    def _new_versions(self, groups: Sequence[Mapping[str, FileVersion]]) -> dict[str, FileVersion]:
        new = (thing for thing in groups if any(self._taken_versions.get(name) != thing[name] for name in thing))
        return {name: version for thing in new for name, version in thing.items()}

    def mark_taken(self, versions: Mapping[str, FileVersion]) -> None:
        self._taken_versions.update(versions)

    def _scan(self) -> list[dict[str, FileVersion]]:
        return [self._match_versions(match) for match in match_files(self._pattern, self._folder)]

    def _match_versions(self, match: Path) -> dict[str, FileVersion]:
        found = {name: _version_or_none(self._folder / name) for name in _complete_names(match, self._folder)}
        return {name: version for name, version in found.items() if version is not None and version[0]}


class StagingDir:
    """Sets saves aside, in a folder of the sandbox."""

    def __init__(self, output: Path, folder: Path) -> None:
        self._output, self._folder, self._n_staged = output, folder, 0

    def stage_noticed(self, notice: SaveNotice) -> CheckpointSnapshot | None:
        """None if it is not there any more, or not below the output folder."""
        root = Path(os.path.normpath(self._output / notice.path))
        if self._output not in root.parents:
            return None
        whole = _complete_names(root, self._output)
        return self._stage(whole, root.relative_to(self._output).as_posix(), notice.step, notice.epoch, _link_or_copy)

    def stage_stable(self, versions: Mapping[str, FileVersion], step: int) -> CheckpointSnapshot | None:
        """None if it changed while it was copied."""
        names = sorted(versions)
        save = self._stage(names, _common_path(names), step, None, _copy)
        if save is None or all(_version_or_none(self._output / name) == versions[name] for name in names):
            return save
        self.remove(save)
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
    except OSError:  # a file system without hard links, or another one
        _copy(source, target)


def _link_with_retries(source: Path, target: Path) -> None:
    """Linux finds no file if the next one is renamed onto it at that very moment."""
    for left in reversed(range(_MAX_LINK_TRIES)):
        try:
            os.link(source, target)
            break
        except FileNotFoundError:
            if not left or not os.path.lexists(source):
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
    """Names of the files that the pattern means."""
    return {name for match in match_files(pattern, folder) for name in _complete_names(match, folder)}


def _complete_names(path: Path, folder: Path) -> list[str]:
    """Of a file, or of those below a folder: what no program is about to rename into place."""
    names = (file.relative_to(folder).as_posix() for file in _iter_files(path))
    return [name for name in names if not is_temporary_name(name)]


def _version_or_none(path: Path) -> FileVersion | None:
    with suppress(OSError):
        return file_version(path)
    return None
