"""Going on from a checkpoint: the furthest generation of the job that verifies is there before the steps start."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from packtrain.agent.checkpoints.record import Record, best_first
from packtrain.agent.checkpoints.store import Shelf, place_of, shelf_of
from packtrain.agent.context import Context
from packtrain.agent.file_versions import version_of
from packtrain.errors import FailedError, TransferError
from packtrain.events import kinds
from packtrain.plan import Item
from packtrain.transfer.fetch import fetch
from packtrain.transfer.retry import Patience

# The data is not what the record says: no time makes it better. Anything else is the service's trouble.
_NOT_WHOLE = frozenset({"digest_mismatch", "truncated", "object_missing", "not_the_data", "archive_unsafe"})
_MAY_NOT_LOOK = frozenset({"token_refused", "unsupported"})

Bring = Callable[[Item, Path], None]


def restore(context: Context) -> None:
    """Raises FailedError when the destination cannot be asked for the whole patience: to begin anew meanwhile would
    throw away what stands there."""
    place = place_of(context)
    if context.job.checkpoint is None or place is None:
        return
    began = time.monotonic()
    shelf = shelf_of(context, place)
    found = best_first(_records(context, shelf))
    for broken in shelf.broken:
        context.notice("fetch", f"a checkpoint has no good record and is not used: {broken}")
    record = _first_whole(context, shelf, found)
    if record is not None:
        _take_up(context, record, began)
        _bring_the_rest(context, shelf, record)


def _records(context: Context, shelf: Shelf) -> list[Record]:
    patience = Patience(context.job.patience_s, 1, time.monotonic())
    while True:
        try:
            return shelf.records()
        except TransferError as error:
            if error.kind in _MAY_NOT_LOOK:
                context.notice("fetch", f"nobody may look for checkpoints, so it starts from the beginning: {error}")
                return []
            patience.failed(0, error)
        wait = patience.wait_s(time.monotonic())
        if wait is None:
            raise patience.verdict()
        context.stop.wait(wait)
        context.stop.check()


def _first_whole(context: Context, shelf: Shelf, found: list[Record]) -> Record | None:
    for record in found:
        try:
            bring_generation(shelf.items(record), context.box.aside / "restored", _fetching(context))
            return record
        except FailedError as error:
            if error.kind not in _NOT_WHOLE:
                raise
            context.saved.void.add(record.prefix)
            words = f"the checkpoint of step {record.step} ({record.prefix}) is not whole and is not used: {error}"
            context.notice("fetch", words)
    return None


def bring_generation(items: list[Item], folder: Path, bring: Bring) -> None:
    """All files of a generation, verified, in a folder of their own; or what `bring` raises."""
    for item in items:
        (folder / item.name).parent.mkdir(parents=True, exist_ok=True)
        bring(item, folder / item.name)


def _fetching(context: Context) -> Bring:
    def bring(item: Item, target: Path) -> None:
        fetch(
            item,
            target,
            context.secrets.reveal,
            patience_s=context.job.patience_s,
            stop=context.stop.check,
            progress=lambda done, total: None,
        )

    return bring


def _take_up(context: Context, record: Record, began: float) -> None:
    """To the names that the program knows, before any step runs."""
    output, saved = context.box.output, context.saved
    for file in record.files:
        (output / file.name).parent.mkdir(parents=True, exist_ok=True)
        (context.box.aside / "restored" / file.name).replace(output / file.name)
        saved.versions[file.name] = version_of(output / file.name)
    saved.start_step, saved.path = record.step, output / record.path
    context.journal.emit(
        kinds.CHECKPOINT_RESTORED,
        step=record.step,
        epoch=record.epoch,
        path=record.path,
        bytes=record.bytes,
        emitter=record.emitter,
        generation=record.generation,
        seconds=round(time.monotonic() - began, 3),
    )


def _bring_the_rest(context: Context, shelf: Shelf, record: Record) -> None:
    """Other outputs of the attempt that saved it (logs, the best model so far), if it left in time. What a failed one
    had written is not taken: an output of its own that did not pass its check must not pass as ours."""
    try:
        for item in shelf.left_by(record.emitter):
            target = context.box.output / item.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                _fetching(context)(item, target)
    except (FailedError, OSError) as error:
        context.stop.check()
        context.notice("fetch", f"not all outputs of the attempt before could be brought back: {error}")
