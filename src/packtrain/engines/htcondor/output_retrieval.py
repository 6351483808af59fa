"""Handles the files that the pool returns: commits outputs, and passes checkpoints on to the next attempt."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packtrain.engines.api import SubmitRequest
from packtrain.engines.htcondor.input_transfer import local_path
from packtrain.errors import FormatError
from packtrain.events import Event, JournalReader, kinds
from packtrain.fileutil import temporary_path
from packtrain.plan import AttemptFolder, Job, OutputManifest, RunFolder
from packtrain.plan.output_manifest import MANIFEST_NAME, staging_folder
from packtrain.transfer.urls import is_http

_FAILED_OUTPUTS_DIR = ".packtrain"  # outputs of executions that did not pass their checks


def commit_outputs(job: Job, attempt_folder: AttemptFolder) -> None:
    """Move the outputs of a successful attempt to the output folder of its job, each file atomically.

    Repeatable. Raises OSError. Outputs that are not files of this machine were uploaded by the agent.
    """
    if job.output is None or not job.output.location.url.startswith("file:"):
        return
    target_folder = local_path(job.output.location)
    target_folder.mkdir(parents=True, exist_ok=True)
    for path in _accepted_files(attempt_folder):
        _move_file(path, target_folder / path.relative_to(attempt_folder.output))
    shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)


def has_all_outputs(job: Job, attempt_folder: AttemptFolder) -> bool:
    """Return whether an attempt succeeded and the pool has returned all its outputs."""
    end_event = _last_end_event(attempt_folder)
    if end_event is None or end_event.data.get("outcome") != "succeeded":
        return False
    if job.output is not None and not job.output.location.url.startswith("file:"):
        # The agent uploads outputs before it reports success, except to a URL, to which the supervisor uploads them.
        return not is_http(job.output.location.url) or _has_manifest(job, attempt_folder, end_event)
    outputs = _listed_outputs(attempt_folder, end_event)
    return outputs is not None and all(_is_retrieved(attempt_folder.output, output) for output in outputs)


def _has_manifest(job: Job, attempt_folder: AttemptFolder, end_event: Event) -> bool:
    """Return whether the pool has returned the outputs that the agent's manifest lists, and the manifest itself."""
    staging = attempt_folder.output / staging_folder(end_event.run, job.id, end_event.emitter)
    try:
        manifest = OutputManifest.from_text((staging / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, FormatError):
        return False
    return all(_is_retrieved(staging / "files", {"path": e.path, "bytes": e.bytes}) for e in manifest.entries)


def _last_end_event(attempt_folder: AttemptFolder) -> Event | None:
    end_events = [event for event in JournalReader(attempt_folder.journal).read() if event.kind == kinds.AGENT_ENDED]
    return end_events[-1] if end_events else None


def _listed_outputs(attempt_folder: AttemptFolder, end_event: Event) -> list[Mapping[str, Any]] | None:
    """Return the agent's list of all outputs, or None if there is none or it is incomplete."""
    n_outputs, outputs = end_event.data.get("n_outputs"), list(end_event.data.get("outputs") or [])
    if type(n_outputs) is not int:
        return None
    if len(outputs) == n_outputs:
        return outputs
    try:
        lines = attempt_folder.output_listing(end_event.emitter).read_text(encoding="utf-8").splitlines()
        outputs = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    return outputs if len(outputs) == n_outputs else None


def _is_retrieved(folder: Path, output: Mapping[str, Any]) -> bool:
    try:
        n_bytes = (folder / str(output.get("path"))).stat().st_size
    except OSError:
        return False
    return n_bytes == output.get("bytes")


def _accepted_files(attempt_folder: AttemptFolder) -> Iterator[Path]:
    """Yield the outputs of the execution that succeeded.

    An earlier execution that was interrupted while the pool returned its outputs may have left other files.
    """
    end_event = _last_end_event(attempt_folder)
    outputs = _listed_outputs(attempt_folder, end_event) if end_event else None
    names = None if outputs is None else {str(output.get("path")) for output in outputs}
    for path in _walk_files(attempt_folder.output):
        if names is None or path.relative_to(attempt_folder.output).as_posix() in names:
            yield path


def _walk_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        if Path(folder) == root and _FAILED_OUTPUTS_DIR in subfolders:
            subfolders.remove(_FAILED_OUTPUTS_DIR)
        yield from (Path(folder, name) for name in sorted(names))


def _move_file(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.replace(target)
    except OSError:  # the target is on another file system
        temporary = temporary_path(target)
        try:
            shutil.copy2(path, temporary)
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        path.unlink()


def has_condor_checkpoints(job: Job) -> bool:
    """Return whether HTCondor has to transfer the job's checkpoints, because the agent has no location to upload to."""
    return job.checkpoint is not None and (job.output is None or job.output.location.url.startswith("file:"))


def save_spooled_checkpoint(job: Job, attempt_folder: AttemptFolder, spool_dir: Path) -> None:
    """Copy a checkpoint from the schedd's spool to the attempt folder, atomically.

    HTCondor stores the checkpoint in the spool and deletes it when the job is removed. If the user may not read the
    spool, the next attempt starts from the beginning.
    """
    temporary = temporary_path(attempt_folder.checkpoint)
    try:
        if has_condor_checkpoints(job) and any((spool_dir / "checkpoint").iterdir()):
            shutil.copytree(spool_dir / "checkpoint", temporary)
            shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)
            temporary.rename(attempt_folder.checkpoint)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)


def job_spool_dir(spool_root: str, cluster: int, proc: int) -> Path:
    """Return the folder where the schedd stores the files of a job."""
    return Path(spool_root, str(cluster % 10_000), str(proc % 10_000), f"cluster{cluster}.proc{proc}.subproc0")


def previous_checkpoint(request: SubmitRequest, folder: RunFolder) -> tuple[str, ...]:
    """Return the checkpoint folder of the newest earlier attempt that has one, as an input of this attempt."""
    if not has_condor_checkpoints(request.job):
        return ()
    for number in range(_attempt_number(request.attempt_id) - 1, 0, -1):
        checkpoint = folder.attempt_folder(request.job.id, f"{request.job.id}-{number}").checkpoint
        if checkpoint.is_dir() and any(checkpoint.iterdir()):
            return (str(checkpoint),)
    return ()


def _attempt_number(attempt_id: str) -> int:
    number = attempt_id.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
