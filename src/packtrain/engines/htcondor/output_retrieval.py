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
from packtrain.fileutil import durable_mkdir, durable_move, sync_folder, sync_tree, temporary_path
from packtrain.plan import AttemptFolder, Job, OutputManifest, RunFolder
from packtrain.plan.output_manifest import MANIFEST_NAME, staging_folder
from packtrain.transfer.integrity.digests import sha256_file
from packtrain.transfer.urls import is_http

_FAILED_OUTPUTS_DIR = ".packtrain"  # outputs of executions that did not pass their checks


def commit_outputs(job: Job, attempt_folder: AttemptFolder) -> None:
    """Move the outputs of a successful attempt to the output folder of its job, each file atomically.

    When this returns, they survive a power cut. Repeatable. Raises OSError, also if an output is not what the agent
    listed: a power cut may have damaged it after the pool returned it. Outputs that are not files of this machine were
    uploaded by the agent.
    """
    if job.output is None or not job.output.location.url.startswith("file:"):
        return
    target_folder = local_path(job.output.location)
    durable_mkdir(target_folder)
    returned = {path.relative_to(attempt_folder.output).as_posix(): path for path in _walk_files(attempt_folder.output)}
    listed = _accepted_outputs(attempt_folder)
    if listed is not None:
        for name, output in listed.items():  # those that were not returned were moved before a crash
            _verify_output(returned.get(name, target_folder / name), output)
        # An earlier execution that was interrupted while the pool returned its outputs may have left other files.
        returned = {name: path for name, path in returned.items() if name in listed}
    durable_move({path: target_folder / name for name, path in returned.items()})
    shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)


def _accepted_outputs(attempt_folder: AttemptFolder) -> dict[str, Mapping[str, Any]] | None:
    """Return the outputs of the execution that succeeded by name, or None if it could not list them."""
    end_event = _last_end_event(attempt_folder)
    outputs = _listed_outputs(attempt_folder, end_event) if end_event else None
    if end_event is None or (outputs is None and type(end_event.data.get("n_outputs")) is int):
        raise OSError(f"the list of outputs that the pool returned to {attempt_folder.root} is missing or damaged")
    return None if outputs is None else {str(output.get("path")): output for output in outputs}


def _verify_output(path: Path, output: Mapping[str, Any]) -> None:
    """Raise OSError unless a file has the size and the digest that the agent listed, as far as it listed them."""
    n_bytes = path.stat().st_size
    if n_bytes != output.get("bytes", n_bytes):
        raise OSError(f"{path} has {n_bytes} bytes, but had {output['bytes']} when the job ended")
    if "sha256" in output and sha256_file(path) != output["sha256"]:
        raise OSError(f"{path} has another sha256 than when the job ended")


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


def _walk_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        if Path(folder) == root and _FAILED_OUTPUTS_DIR in subfolders:
            subfolders.remove(_FAILED_OUTPUTS_DIR)
        yield from (Path(folder, name) for name in sorted(names))


def has_condor_checkpoints(job: Job) -> bool:
    """Return whether HTCondor has to transfer the job's checkpoints, because the agent has no location to upload to."""
    return job.checkpoint is not None and (job.output is None or job.output.location.url.startswith("file:"))


def save_spooled_checkpoint(job: Job, attempt_folder: AttemptFolder, spool_dir: Path) -> None:
    """Copy a checkpoint from the schedd's spool to the attempt folder, atomically and durably.

    HTCondor stores the checkpoint in the spool and deletes it when the job is removed. If the user may not read the
    spool, the next attempt starts from the beginning.
    """
    temporary = temporary_path(attempt_folder.checkpoint)
    try:
        if has_condor_checkpoints(job) and any((spool_dir / "checkpoint").iterdir()):
            shutil.copytree(spool_dir / "checkpoint", temporary)
            sync_tree(temporary)
            shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)
            temporary.rename(attempt_folder.checkpoint)
            sync_folder(attempt_folder.root)
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
