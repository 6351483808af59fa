"""Does what `carrying` decides: bytes to the shelf, the record last, the user's own path, removals. No threads."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.agent.checkpoints.record import CheckpointRecord, SavedFile
from packtrain.agent.checkpoints.store import CancelCheck, CheckpointStore
from packtrain.agent.checkpoints.upload_planner import (
    CheckpointSnapshot,
    CommitGeneration,
    PublishGeneration,
    UploadAction,
    UploadFile,
)
from packtrain.agent.watched_files import FileVersion, file_version
from packtrain.errors import FailedError
from packtrain.transfer.digests import sha256_file

_NO_READ_ACCESS_KINDS = ("access_denied", "unsupported")  # who may write need not be allowed to look


class FileChangedError(Exception):
    """A file was written in place while it was on its way."""


class SupersededError(Exception):
    """Another attempt of the job is further, and there is room for one."""


class UploadExecutor:
    """Acts may fail at any point and be done again: nothing that is visible is ever incomplete."""

    def __init__(self, store: CheckpointStore, scratch: Path, check_cancelled: CancelCheck) -> None:
        self._store, self._scratch, self._check_cancelled = store, scratch, check_cancelled
        self._digests: dict[Path, tuple[SavedFile, FileVersion]] = {}

    def execute(self, action: UploadAction) -> CheckpointRecord | None:
        """The record, when it stands. Raises FailedError, ChangedError, BehindError, RecordRefusedError, OSError, or
        what `check` raises."""
        if isinstance(action, UploadFile):
            self._store.upload_file(
                action.generation,
                action.name,
                self._compute_digest(action.snapshot, action.name),
                self._check_cancelled,
            )
        elif isinstance(action, CommitGeneration):
            return self._commit(action)
        elif isinstance(action, PublishGeneration):
            self._publish(action.snapshot)
        else:
            self._store.delete_generation(action.generation, action.names)
        return None

    def forget_digests(self, snapshot: CheckpointSnapshot) -> None:
        for name in snapshot.names:
            self._digests.pop(snapshot.folder / name, None)

    def _compute_digest(self, snapshot: CheckpointSnapshot, name: str) -> Path:
        """The file, its digest taken before it leaves."""
        path = snapshot.folder / name
        version = file_version(path)
        known = self._digests.get(path)
        if known is None or known[1] != version:
            self._digests[path] = SavedFile(name, version[0], sha256_file(path)), version
        return path

    def _commit(self, action: CommitGeneration) -> CheckpointRecord:
        save = action.snapshot
        if not self._store.can_list:
            self._require_newest(save)
        files = tuple(self._require_unchanged(save.folder / name) for name in save.names)
        who = (self._store.run, self._store.job, self._store.emitter, action.generation)
        record = CheckpointRecord(*who, save.step, save.epoch, save.path, files, time.time())
        self._scratch.write_text(record.to_json(), encoding="utf-8")
        self._store.commit(action.generation, self._scratch, self._check_cancelled)
        return record

    def _require_unchanged(self, path: Path) -> SavedFile:
        file, version = self._digests[path]
        if file_version(path) != version:
            raise FileChangedError(f"{file.name} was written again while it was sent; write a new file and rename it")
        return file

    def _publish(self, snapshot: CheckpointSnapshot) -> None:
        """Unless another attempt of the job is further, or nobody looks there."""
        if not self._store.publishes:
            return
        if not self._store.can_list:
            self._publish_single_file(snapshot)
        elif not self._is_superseded(snapshot):
            for name in snapshot.names:
                self._store.publish(name, snapshot.folder / name, self._check_cancelled)

    def _publish_single_file(self, snapshot: CheckpointSnapshot) -> None:
        if len(snapshot.names) > 1:
            raise FailedError("unsupported", "an http output takes one file, but the checkpoint has several")
        self._require_newest(snapshot)
        for name in snapshot.names:
            self._store.publish(name, self._compute_digest(snapshot, name), self._check_cancelled)

    def _require_newest(self, snapshot: CheckpointSnapshot) -> None:
        if self._is_superseded(snapshot):
            raise SupersededError(f"another attempt of the job has carried a later step than {snapshot.step} there")

    def _is_superseded(self, snapshot: CheckpointSnapshot) -> bool:
        try:
            return self._store.max_step_of_others() > snapshot.step
        except FailedError as error:
            if error.kind not in _NO_READ_ACCESS_KINDS:
                raise
            return False
