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

from packtrain.agent.checkpoints.upload_planner import Save
from packtrain.agent.file_versions import Version, is_temporary, version_of
from packtrain.agent.outputs.inventory import files_below, matches
from packtrain.agent.watched_files import GrowingFile
from packtrain.transfer.reflink import clone

_TRIES = 20


@dataclass(frozen=True)
class Announcement:
    path: str
    step: int
    epoch: int | None


class Announcements:
    """New complete lines of the file; what is no announcement is counted."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self.ignored = 0

    def read(self) -> list[Announcement]:
        parsed = [parse_announcement(line) for line in self._file.lines()]
        self.ignored += parsed.count(None)
        return [one for one in parsed if one is not None]


def parse_announcement(line: bytes) -> Announcement | None:
    try:
        raw = json.loads(line)
        step, epoch, path = raw["step"], raw.get("epoch"), raw["path"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(path, str) or not path or not _whole(step) or not (epoch is None or _whole(epoch)):
        return None
    return Announcement(path, step, epoch)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


class Quiet:
    """What the pattern matches: which of it is new, once all of it rests. A folder is taken as a whole, since programs
    read it so; of files beside each other, such as `ckpt-*.pt`, those are taken that changed."""

    def __init__(self, pattern: str, folder: Path, known: Mapping[str, Version]) -> None:
        self._pattern, self._folder = pattern, folder
        self._taken: dict[str, Version] = dict(known)  # what is in a generation already, or was restored
        self._seen: list[dict[str, Version]] = []

    def look(self) -> dict[str, Version]:
        """What is new, if nothing changed since the look before."""
        now = self._things()
        rests, self._seen = now == self._seen, now
        return self._fresh(now) if rests else {}

    def last_look(self, rested_s: float) -> dict[str, Version]:
        """What is new and was not touched for so long: a program that was killed may have been writing."""
        before = time.time_ns() - int(rested_s * 1e9)
        return self._fresh([thing for thing in self._things() if all(v[1] <= before for v in thing.values())])

    def _fresh(self, things: Sequence[Mapping[str, Version]]) -> dict[str, Version]:
        new = (thing for thing in things if any(self._taken.get(name) != thing[name] for name in thing))
        return {name: version for thing in new for name, version in thing.items()}

    def take(self, versions: Mapping[str, Version]) -> None:
        self._taken.update(versions)

    def _things(self) -> list[dict[str, Version]]:
        return [self._versions(match) for match in matches(self._pattern, self._folder)]

    def _versions(self, match: Path) -> dict[str, Version]:
        found = {name: _version(self._folder / name) for name in _whole_names(match, self._folder)}
        return {name: version for name, version in found.items() if version is not None and version[0]}


class Aside:
    """Sets saves aside, in a folder of the sandbox."""

    def __init__(self, output: Path, folder: Path) -> None:
        self._output, self._folder, self._count = output, folder, 0

    def announced(self, said: Announcement) -> Save | None:
        """None if it is not there any more, or not below the output folder."""
        root = Path(os.path.normpath(self._output / said.path))
        if self._output not in root.parents:
            return None
        whole = _whole_names(root, self._output)
        return self._set_aside(whole, root.relative_to(self._output).as_posix(), said.step, said.epoch, _link)

    def quiet(self, versions: Mapping[str, Version], step: int) -> Save | None:
        """None if it changed while it was copied."""
        names = sorted(versions)
        save = self._set_aside(names, _common(names), step, None, _copy)
        if save is None or all(_version(self._output / name) == versions[name] for name in names):
            return save
        self.remove(save)
        return None

    def _set_aside(
        self, names: Sequence[str], path: str, step: int, epoch: int | None, take: Callable[[Path, Path], None]
    ) -> Save | None:
        started, self._count = time.monotonic(), self._count + 1
        folder, versions = self._folder / str(self._count), []
        try:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                versions.append(version_of(self._output / name))
                take(self._output / name, folder / name)
        except FileNotFoundError:  # the program removed it
            shutil.rmtree(folder, ignore_errors=True)
            return None
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Save(folder, tuple(names), path, step, epoch, tuple(versions), started) if names else None

    @staticmethod
    def remove(save: Save) -> None:
        shutil.rmtree(save.folder, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    try:
        _link_what_is_there(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links, or another one
        _copy(source, target)


def _link_what_is_there(source: Path, target: Path) -> None:
    """Linux finds no file if the next one is renamed onto it at that very moment."""
    for left in reversed(range(_TRIES)):
        try:
            os.link(source, target)
            break
        except FileNotFoundError:
            if not left or not os.path.lexists(source):
                raise


def _copy(source: Path, target: Path) -> None:
    clone(source, target, lambda: None)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in files_below(path) if file.is_file())
    elif path.is_file():
        yield path


def _common(names: list[str]) -> str:
    return names[0] if len(names) == 1 else os.path.commonpath(names) or "."


def matching(pattern: str, folder: Path) -> set[str]:
    """Names of the files that the pattern means."""
    return {name for match in matches(pattern, folder) for name in _whole_names(match, folder)}


def _whole_names(path: Path, folder: Path) -> list[str]:
    """Of a file, or of those below a folder: what no program is about to rename into place."""
    names = (file.relative_to(folder).as_posix() for file in _files(path))
    return [name for name in names if not is_temporary(name)]


def _version(path: Path) -> Version | None:
    with suppress(OSError):
        return version_of(path)
    return None
