"""Going on from a checkpoint: the furthest generation of the job that verifies is there before the steps start."""

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
from packtrain.transfer.retry import RetryTracker

# The data is not what the record says: no time makes it better. Anything else is the service's trouble.
_BROKEN_CHECKPOINT_KINDS = frozenset(
    {"digest_mismatch", "truncated", "object_missing", "unexpected_content", "archive_unsafe"}
)
_NO_READ_ACCESS_KINDS = frozenset({"access_denied", "unsupported"})

FetchFile = Callable[[RemoteFile, Path], None]


def restore_checkpoint(context: AttemptContext) -> None:
    """Raises FailedError when the destination cannot be asked for the whole patience: to begin anew meanwhile would
    throw away what stands there."""
    place = checkpoint_destination(context)
    if context.job.checkpoint is None or place is None:
        return
    began = time.monotonic()
    shelf = open_checkpoint_store(context, place)
    found = best_first(_read_records_with_retries(context, shelf))
    for broken in shelf.broken_records:
        context.emit_notice("fetch", f"a checkpoint has no good record and is not used: {broken}")
    record = _fetch_first_complete(context, shelf, found)
    if record is not None:
        _install_checkpoint(context, record, began)
        _fetch_requeue_outputs(context, shelf, record)


def _read_records_with_retries(context: AttemptContext, store: CheckpointStore) -> list[CheckpointRecord]:
    patience = RetryTracker(context.job.retry_timeout_s, 1, time.monotonic())
    while True:
        try:
            return store.read_records()
        except TransferError as error:
            if error.kind in _NO_READ_ACCESS_KINDS:
                context.emit_notice(
                    "fetch", f"nobody may look for checkpoints, so it starts from the beginning: {error}"
                )
                return []
            patience.record_failure(0, error)
        wait = patience.next_wait_s(time.monotonic())
        if wait is None:
            raise patience.final_error()
        context.stop.wait(wait)
        context.stop.check()


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
            words = f"the checkpoint of step {record.step} ({record.prefix}) is not whole and is not used: {error}"
            context.emit_notice("fetch", words)
    return None


def fetch_generation(remote_files: list[RemoteFile], folder: Path, fetch_file: FetchFile) -> None:
    """All files of a generation, verified, in a folder of their own; or what `bring` raises."""
    for item in remote_files:
        (folder / item.name).parent.mkdir(parents=True, exist_ok=True)
        fetch_file(item, folder / item.name)


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
    """To the names that the program knows, before any step runs."""
    output, saved = context.sandbox.output, context.checkpoint_state
    for file in record.files:
        (output / file.name).parent.mkdir(parents=True, exist_ok=True)
        (context.sandbox.checkpoint_staging / "restored" / file.name).replace(output / file.name)
        saved.restored_versions[file.name] = file_version(output / file.name)
    saved.restored_step, saved.restored_path = record.step, output / record.path
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
    """Other outputs of the attempt that saved it (logs, the best model so far), if it left in time. What a failed one
    had written is not taken: an output of its own that did not pass its check must not pass as ours."""
    try:
        for item in store.list_requeue_outputs(record.emitter):
            target = context.sandbox.output / item.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                _make_fetch_file(context)(item, target)
    except (FailedError, OSError) as error:
        context.stop.check()
        context.emit_notice("fetch", f"not all outputs of the attempt before could be brought back: {error}")
