"""Show intermediate outputs under the user's path while no attempt of the job is accepted.

These are finished files of the newest attempt (continuousOutputSync), and the files of the newest complete checkpoint.
Attempts write neither there: the supervisor copies them from the attempts' own prefixes, and stops before it publishes.
Publication then replaces or deletes everything that was shown.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field

from packtrain.errors import FormatError, TransferError
from packtrain.plan import ManifestEntry, OutputManifest
from packtrain.plan.output_manifest import SYNC_LIST_NAME, staged_name, staging_folder
from packtrain.publication.destination import Destination, JobOutputs, is_reserved
from packtrain.publication.publish import add_shown_names
from packtrain.transfer.urls import check_listed_name


@dataclass(frozen=True)
class CheckpointId:
    """A complete checkpoint of a job."""

    step: int  # training step
    emitter: str
    generation: int


@dataclass
class ShownOutputs:
    """What is shown of one job. The object is used by one thread at a time."""

    emitter: str = ""  # whose synced files are shown
    entries: dict[str, ManifestEntry] = field(default_factory=dict)
    checkpoint: CheckpointId | None = None


def show_synced_files(outputs: JobOutputs, emitter: str, shown: ShownOutputs) -> None:
    """Show the files that an attempt has finished and that are not shown yet. Raises FailedError."""
    destination = Destination(outputs)
    try:
        text = destination.read_text(f"{staging_folder(outputs.run, outputs.job.id, emitter)}/{SYNC_LIST_NAME}")
        entries = {entry.path: entry for entry in OutputManifest.from_text(text).entries}
    except (TransferError, FormatError) as error:
        if isinstance(error, TransferError) and error.kind != "object_missing":
            raise
        return
    if shown.emitter != emitter:
        shown.emitter, shown.entries = emitter, {}
    changed = [entry for name, entry in entries.items() if shown.entries.get(name) != entry and not is_reserved(name)]
    add_shown_names(outputs.folder, outputs.job.id, {entry.path for entry in changed})
    for entry in changed:
        _show(destination, staged_name(outputs.run, outputs.job.id, emitter, entry.path), entry.path)
        shown.entries[entry.path] = entry


def show_checkpoint(outputs: JobOutputs, checkpoint: CheckpointId, shown: ShownOutputs) -> None:
    """Show the files of a checkpoint. Raises FailedError."""
    destination = Destination(outputs)
    prefix = f".packtrain/checkpoints/{outputs.run}/{outputs.job.id}/{checkpoint.emitter}/{checkpoint.generation}"
    shown.checkpoint = checkpoint
    with suppress(ValueError, KeyError, TypeError):  # a record of another version
        try:
            record = json.loads(destination.read_text(f"{prefix}/record.json"))
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            return  # a newer one has replaced it
        names = [check_listed_name(str(file["name"]), prefix) for file in record["files"]]
        add_shown_names(outputs.folder, outputs.job.id, set(names))
        for name in names:
            _show(destination, f"{prefix}/{name}", name)


def _show(destination: Destination, source: str, name: str) -> None:
    try:
        destination.copy(source, name)
    except TransferError as error:
        if error.kind != "object_missing":  # the attempt has deleted it since
            raise
