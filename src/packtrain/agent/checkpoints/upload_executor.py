"""Does what `carrying` decides: bytes to the shelf, the record last, the user's own path, removals. No threads."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.agent.checkpoints.record import Record, SavedFile
from packtrain.agent.checkpoints.store import Shelf, Stop
from packtrain.agent.checkpoints.upload_planner import Act, Save, Seal, Send, Show
from packtrain.agent.file_versions import Version, version_of
from packtrain.errors import FailedError
from packtrain.transfer.digests import sha256_of

_MAY_NOT_LOOK = ("token_refused", "unsupported")  # who may write need not be allowed to look


class ChangedError(Exception):
    """A file was written in place while it was on its way."""


class BehindError(Exception):
    """Another attempt of the job is further, and there is room for one."""


class Porter:
    """Acts may fail at any point and be done again: nothing that is visible is ever incomplete."""

    def __init__(self, shelf: Shelf, scratch: Path, check: Stop) -> None:
        self._shelf, self._scratch, self._check = shelf, scratch, check
        self._sums: dict[Path, tuple[SavedFile, Version]] = {}

    def do(self, act: Act) -> Record | None:
        """The record, when it stands. Raises FailedError, ChangedError, BehindError, RecordRefusedError, OSError, or
        what `check` raises."""
        if isinstance(act, Send):
            self._shelf.send(act.generation, act.name, self._summed(act.save, act.name), self._check)
        elif isinstance(act, Seal):
            return self._seal(act)
        elif isinstance(act, Show):
            self._show(act.save)
        else:
            self._shelf.drop(act.generation, act.names)
        return None

    def forget(self, save: Save) -> None:
        for name in save.names:
            self._sums.pop(save.folder / name, None)

    def _summed(self, save: Save, name: str) -> Path:
        """The file, its digest taken before it leaves."""
        path = save.folder / name
        version = version_of(path)
        known = self._sums.get(path)
        if known is None or known[1] != version:
            self._sums[path] = SavedFile(name, version[0], sha256_of(path)), version
        return path

    def _seal(self, act: Seal) -> Record:
        save = act.save
        if not self._shelf.lists:
            self._stay_ahead(save)
        files = tuple(self._unchanged(save.folder / name) for name in save.names)
        who = (self._shelf.run, self._shelf.job, self._shelf.emitter, act.generation)
        record = Record(*who, save.step, save.epoch, save.path, files, time.time())
        self._scratch.write_text(record.to_json(), encoding="utf-8")
        self._shelf.seal(act.generation, self._scratch, self._check)
        return record

    def _unchanged(self, path: Path) -> SavedFile:
        file, version = self._sums[path]
        if version_of(path) != version:
            raise ChangedError(f"{file.name} was written again while it was sent; write a new file and rename it")
        return file

    def _show(self, save: Save) -> None:
        """Unless another attempt of the job is further, or nobody looks there."""
        if not self._shelf.shows:
            return
        if not self._shelf.lists:
            self._show_at_one_address(save)
        elif not self._is_behind(save):
            for name in save.names:
                self._shelf.show(name, save.folder / name, self._check)

    def _show_at_one_address(self, save: Save) -> None:
        if len(save.names) > 1:
            raise FailedError("unsupported", "an http output takes one file, but the checkpoint has several")
        self._stay_ahead(save)
        for name in save.names:
            self._shelf.show(name, self._summed(save, name), self._check)

    def _stay_ahead(self, save: Save) -> None:
        if self._is_behind(save):
            raise BehindError(f"another attempt of the job has carried a later step than {save.step} there")

    def _is_behind(self, save: Save) -> bool:
        try:
            return self._shelf.furthest_of_others() > save.step
        except FailedError as error:
            if error.kind not in _MAY_NOT_LOOK:
                raise
            return False
