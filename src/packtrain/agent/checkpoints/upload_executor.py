"""Perform the actions that the upload planner decides: upload files, commit, delete. No threads."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.agent.checkpoints.record import CheckpointRecord, SavedFile
from packtrain.agent.checkpoints.store import CancelCheck, CheckpointStore
from packtrain.agent.checkpoints.upload_planner import (
    CheckpointSnapshot,
    CommitGeneration,
    UploadAction,
    UploadFile,
)
from packtrain.agent.watched_files import FileVersion, file_version
from packtrain.errors import FailedError
from packtrain.transfer.integrity.digests import sha256_file

_NO_READ_ACCESS_KINDS = ("access_denied", "unsupported")  # write access does not imply read access


class FileChangedError(Exception):
    """A file of the snapshot was rewritten in place during its upload."""


class SupersededError(Exception):
    """Another attempt of the job uploaded a later step, and the destination holds a single file."""


class UploadExecutor:
    """Perform upload actions. An action may fail at any point and be repeated: visible data is always complete."""

    def __init__(self, store: CheckpointStore, scratch: Path, check_cancelled: CancelCheck) -> None:
        self._store, self._scratch, self._check_cancelled = store, scratch, check_cancelled
        self._digests: dict[Path, tuple[SavedFile, FileVersion]] = {}

    def execute(self, action: UploadAction) -> CheckpointRecord | None:
        """Perform one action, and return the record if the action committed a generation.

        Raises FailedError, FileChangedError, SupersededError, RecordRejectedError, OSError, or what `check_cancelled`
        raises.
        """
        if isinstance(action, UploadFile):
            if not self._store.can_list:
                self._require_single_file(action.snapshot)
            self._store.upload_file(
                action.generation,
                action.name,
                self._compute_digest(action.snapshot, action.name),
                self._check_cancelled,
            )
        elif isinstance(action, CommitGeneration):
            return self._commit(action)
        else:
            self._store.delete_generation(action.generation, action.names)
        return None

    def forget_digests(self, snapshot: CheckpointSnapshot) -> None:
        for name in snapshot.names:
            self._digests.pop(snapshot.folder / name, None)

    def _compute_digest(self, snapshot: CheckpointSnapshot, name: str) -> Path:
        """Return the path of a file after computing its digest, so that the digest is older than the upload."""
        path = snapshot.folder / name
        version = file_version(path)
        cached = self._digests.get(path)
        if cached is None or cached[1] != version:
            self._digests[path] = SavedFile(name, version[0], sha256_file(path)), version
        return path

    def _commit(self, action: CommitGeneration) -> CheckpointRecord:
        snapshot = action.snapshot
        if not self._store.can_list:
            self._require_newest(snapshot)
        record = CheckpointRecord(
            run=self._store.run,
            job=self._store.job,
            emitter=self._store.emitter,
            generation=action.generation,
            step=snapshot.step,
            epoch=snapshot.epoch,
            path=snapshot.path,
            files=tuple(self._require_unchanged(snapshot.folder / name) for name in snapshot.names),
            saved_at=time.time(),
        )
        self._scratch.write_text(record.to_json(), encoding="utf-8")
        self._store.commit(action.generation, self._scratch, self._check_cancelled)
        return record

    def _require_unchanged(self, path: Path) -> SavedFile:
        file, version = self._digests[path]
        if file_version(path) != version:
            raise FileChangedError(
                f"{file.name} was rewritten during its upload; write checkpoints to a new file and rename it"
            )
        return file

    def _require_single_file(self, snapshot: CheckpointSnapshot) -> None:
        if len(snapshot.names) > 1:
            raise FailedError("unsupported", "an http output holds one file, but the checkpoint has several")
        self._require_newest(snapshot)

    def _require_newest(self, snapshot: CheckpointSnapshot) -> None:
        if self._is_superseded(snapshot):
            raise SupersededError(f"another attempt of the job already uploaded a later step than {snapshot.step}")

    def _is_superseded(self, snapshot: CheckpointSnapshot) -> bool:
        try:
            return self._store.max_step_of_others() > snapshot.step
        except FailedError as error:
            if error.kind not in _NO_READ_ACCESS_KINDS:
                raise
            return False
