"""Restore a checkpoint: download the job's most advanced valid generation before the steps start."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from packtrain.agent.checkpoints.record import CheckpointRecord, best_first
from packtrain.agent.checkpoints.store import CheckpointStore, checkpoint_destination, open_checkpoint_store
from packtrain.agent.context import AttemptContext
from packtrain.agent.watched_files import file_version
from packtrain.errors import FailedError, TransferError
from packtrain.events import kinds
from packtrain.plan import RemoteFile
from packtrain.transfer.fetch import fetch
from packtrain.transfer.retry import retry

# The data does not match the record, and retrying cannot change that. Other kinds are faults of the service.
_BROKEN_CHECKPOINT_KINDS = frozenset(
    {"digest_mismatch", "truncated", "object_missing", "unexpected_content", "archive_unsafe"}
)
_NO_READ_ACCESS_KINDS = frozenset({"access_denied", "unsupported"})

FetchFile = Callable[[RemoteFile, Path], None]


def restore_checkpoint(context: AttemptContext) -> None:
    """Install the best checkpoint of the job where the program saved it, if there is one.

    Raises FailedError if the destination cannot be read until the retry timeout expires: starting from step 0 would
    discard the progress that is stored there.
    """
    output = checkpoint_destination(context)
    if context.job.checkpoint is None or output is None:
        return
    started_at = time.monotonic()
    store = open_checkpoint_store(context, output)
    records = best_first(_read_records_with_retries(context, store))
    for problem in store.broken_records:
        context.emit_notice("fetch", f"ignored a checkpoint with an invalid record: {problem}")
    record = _fetch_first_complete(context, store, records)
    if record is not None:
        _install_checkpoint(context, record, started_at)
        _fetch_requeue_outputs(context, store, record)


def _read_records_with_retries(context: AttemptContext, store: CheckpointStore) -> list[CheckpointRecord]:
    try:
        return retry(store.read_records, context.job.retry_timeout_s, context.stop.check)
    except TransferError as error:
        if error.kind not in _NO_READ_ACCESS_KINDS:
            raise
        context.emit_notice("fetch", f"cannot list checkpoints, so the job starts from step 0: {error}")
        return []


def _fetch_first_complete(
    context: AttemptContext, store: CheckpointStore, records: list[CheckpointRecord]
) -> CheckpointRecord | None:
    for record in records:
        try:
            fetch_generation(
                store.remote_files(record), context.sandbox.checkpoint_staging / "restored", _make_fetch_file(context)
            )
            return record
        except FailedError as error:
            if error.kind not in _BROKEN_CHECKPOINT_KINDS:
                raise
            context.checkpoint_state.broken_generations.add(record.prefix)
            which = f"the checkpoint of step {record.step} ({record.prefix})"
            context.emit_notice("fetch", f"{which} is incomplete or damaged and is ignored: {error}")
    return None


def fetch_generation(remote_files: list[RemoteFile], folder: Path, fetch_file: FetchFile) -> None:
    """Download and verify all files of a generation into `folder`. Raises what `fetch_file` raises."""
    for remote_file in remote_files:
        (folder / remote_file.name).parent.mkdir(parents=True, exist_ok=True)
        fetch_file(remote_file, folder / remote_file.name)


def _make_fetch_file(context: AttemptContext) -> FetchFile:
    def fetch_file(remote_file: RemoteFile, target: Path) -> None:
        fetch(
            remote_file,
            target,
            context.secrets.resolve_secret,
            retry_timeout_s=context.job.retry_timeout_s,
            check_cancelled=context.stop.check,
            on_progress=lambda done, total: None,
        )

    return fetch_file


def _install_checkpoint(context: AttemptContext, record: CheckpointRecord, started_at: float) -> None:
    """Move the downloaded files to the names under which the program saved them."""
    folder, state = context.checkpoint_folder, context.checkpoint_state
    for file in record.files:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (context.sandbox.checkpoint_staging / "restored" / file.name).replace(folder / file.name)
        state.restored_versions[file.name] = file_version(folder / file.name)
    state.restored_step, state.restored_path = record.step, folder / record.path
    context.journal.emit(
        kinds.CHECKPOINT_RESTORED,
        step=record.step,
        epoch=record.epoch,
        path=record.path,
        bytes=record.total_bytes,
        emitter=record.emitter,
        generation=record.generation,
        seconds=round(time.monotonic() - started_at, 3),
    )


def _fetch_requeue_outputs(context: AttemptContext, store: CheckpointStore, record: CheckpointRecord) -> None:
    """Download the other outputs (logs, the best model so far) of the attempt that saved the checkpoint.

    Only a requeued attempt stores them there. Outputs of a failed attempt are not used: an output that failed its check
    then must not pass as a result of this attempt.
    """
    try:
        for remote_file in store.list_requeue_outputs(record.emitter):
            target = context.sandbox.output / remote_file.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                _make_fetch_file(context)(remote_file, target)
    except (FailedError, OSError) as error:
        context.stop.check()
        context.emit_notice("fetch", f"not all outputs of the previous attempt could be downloaded: {error}")
