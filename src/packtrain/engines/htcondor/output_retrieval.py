"""What an attempt brought back: outputs go where the job's outputs belong, a checkpoint to the attempt that follows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packtrain.engines.api import SubmitRequest
from packtrain.engines.htcondor.input_transfer import local_path
from packtrain.engines.htcondor.submit_description import has_condor_checkpoints
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import AttemptFolder, Job, RunFolder

_FAILED_OUTPUTS_DIR = ".packtrain"  # results of starts that did not pass their checks


def commit_outputs(job: Job, attempt_folder: AttemptFolder) -> None:
    """Move the accepted outputs, each complete or not at all. Repeatable. Raises OSError."""
    if job.output is None or not job.output.location.url.startswith("file:"):
        return
    target = local_path(job.output.location)
    target.mkdir(parents=True, exist_ok=True)
    for path in _accepted_files(attempt_folder):
        _move_file(path, target / path.relative_to(attempt_folder.output))
    shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)


def has_all_outputs(job: Job, attempt_folder: AttemptFolder) -> bool:
    """Whether the attempt succeeded and everything that it made has come here, whatever the pool says."""
    word = _last_end_event(attempt_folder)
    if word is None or word.data.get("outcome") != "succeeded":
        return False
    if job.output is not None and not job.output.location.url.startswith("file:"):
        return True  # the agent itself brought them to their place, before it said so
    made = _listed_outputs(attempt_folder, word)
    return made is not None and all(_is_retrieved(attempt_folder.output, entry) for entry in made)


def _last_end_event(attempt_folder: AttemptFolder) -> Event | None:
    ends = [event for event in JournalReader(attempt_folder.journal).read() if event.kind == kinds.AGENT_ENDED]
    return ends[-1] if ends else None


def _listed_outputs(attempt_folder: AttemptFolder, end_event: Event) -> list[Mapping[str, Any]] | None:
    """All outputs by its own account; None where there is no such list, or it has not come whole."""
    count, listed = end_event.data.get("n_outputs"), list(end_event.data.get("outputs") or [])
    if type(count) is not int:
        return None
    if len(listed) == count:
        return listed
    try:
        lines = attempt_folder.output_listing(end_event.emitter).read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    return found if len(found) == count else None


def _is_retrieved(folder: Path, entry: Mapping[str, Any]) -> bool:
    try:
        size = (folder / str(entry.get("path"))).stat().st_size
    except OSError:
        return False
    return size == entry.get("bytes")


def _accepted_files(attempt_folder: AttemptFolder) -> Iterator[Path]:
    """Of the attempt that succeeded; a start before it may have left files of its own, if it ended on their way."""
    word = _last_end_event(attempt_folder)
    made = _listed_outputs(attempt_folder, word) if word else None
    names = None if made is None else {str(entry.get("path")) for entry in made}
    for path in _walk_files(attempt_folder.output):
        if names is None or path.relative_to(attempt_folder.output).as_posix() in names:
            yield path


def _walk_files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        if Path(where) == folder and _FAILED_OUTPUTS_DIR in folders:
            folders.remove(_FAILED_OUTPUTS_DIR)
        yield from (Path(where, name) for name in sorted(names))


def _move_file(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.replace(target)
    except OSError:  # another file system
        temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
        shutil.copy2(path, temporary)
        temporary.replace(target)
        path.unlink()


def save_spooled_checkpoint(job: Job, attempt_folder: AttemptFolder, spool_dir: Path) -> None:
    """What HTCondor carries for an attempt lies in the schedd's spool and goes with the attempt when that is removed: a
    checkpoint is brought here before, complete or not at all. Whoever may not read the spool begins anew."""
    fresh = attempt_folder.root / f".checkpoint.{os.getpid()}.new"
    try:
        if has_condor_checkpoints(job) and any((spool_dir / "checkpoint").iterdir()):
            shutil.copytree(spool_dir / "checkpoint", fresh)
            shutil.rmtree(attempt_folder.checkpoint, ignore_errors=True)
            fresh.rename(attempt_folder.checkpoint)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)


def job_spool_dir(spool_root: str, cluster: int, proc: int) -> Path:
    """Where the schedd keeps the files of a job."""
    return Path(spool_root, str(cluster % 10_000), str(proc % 10_000), f"cluster{cluster}.proc{proc}.subproc0")


def previous_checkpoint(request: SubmitRequest, folder: RunFolder) -> tuple[str, ...]:
    """The checkpoint that the newest earlier attempt of the job brought back, as an input of the next."""
    if not has_condor_checkpoints(request.job):
        return ()
    number = _attempt_number(request.attempt_id)
    for earlier in range(number - 1, 0, -1):
        found = folder.attempt_folder(request.job.id, f"{request.job.id}-{earlier}").checkpoint
        if found.is_dir() and any(found.iterdir()):
            return (str(found),)
    return ()


def _attempt_number(attempt_id: str) -> int:
    last = attempt_id.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
