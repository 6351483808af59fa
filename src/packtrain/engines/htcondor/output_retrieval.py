"""What an attempt brought back: outputs go where the job's outputs belong, a checkpoint to the attempt that follows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packtrain.engines.api import Ticket
from packtrain.engines.htcondor.input_transfer import path_of
from packtrain.engines.htcondor.submit_description import carries_checkpoints
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import AttemptFolder, Job, RunFolder

_PARTIAL = ".packtrain"  # results of starts that did not pass their checks


def bring_home(job: Job, attempt: AttemptFolder) -> None:
    """Move the accepted outputs, each complete or not at all. Repeatable. Raises OSError."""
    if job.output is None or not job.output.ref.url.startswith("file:"):
        return
    target = path_of(job.output.ref)
    target.mkdir(parents=True, exist_ok=True)
    for path in _accepted(attempt):
        _move(path, target / path.relative_to(attempt.output))
    shutil.rmtree(attempt.checkpoint, ignore_errors=True)


def is_home(job: Job, attempt: AttemptFolder) -> bool:
    """Whether the attempt succeeded and everything that it made has come here, whatever the pool says."""
    word = _last_word(attempt)
    if word is None or word.data.get("outcome") != "succeeded":
        return False
    if job.output is not None and not job.output.ref.url.startswith("file:"):
        return True  # the agent itself brought them to their place, before it said so
    made = _made(attempt, word)
    return made is not None and all(_has_arrived(attempt.output, entry) for entry in made)


def _last_word(attempt: AttemptFolder) -> Event | None:
    ends = [event for event in JournalReader(attempt.journal).read() if event.kind == kinds.ATTEMPT_ENDED]
    return ends[-1] if ends else None


def _made(attempt: AttemptFolder, word: Event) -> list[Mapping[str, Any]] | None:
    """All outputs by its own account; None where there is no such list, or it has not come whole."""
    count, listed = word.data.get("output_files"), list(word.data.get("outputs") or [])
    if type(count) is not int:
        return None
    if len(listed) == count:
        return listed
    try:
        lines = attempt.listed(word.emitter).read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    return found if len(found) == count else None


def _has_arrived(folder: Path, entry: Mapping[str, Any]) -> bool:
    try:
        size = (folder / str(entry.get("path"))).stat().st_size
    except OSError:
        return False
    return size == entry.get("bytes")


def _accepted(attempt: AttemptFolder) -> Iterator[Path]:
    """Of the attempt that succeeded; a start before it may have left files of its own, if it ended on their way."""
    word = _last_word(attempt)
    made = _made(attempt, word) if word else None
    names = None if made is None else {str(entry.get("path")) for entry in made}
    for path in _files(attempt.output):
        if names is None or path.relative_to(attempt.output).as_posix() in names:
            yield path


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        if Path(where) == folder and _PARTIAL in folders:
            folders.remove(_PARTIAL)
        yield from (Path(where, name) for name in sorted(names))


def _move(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.replace(target)
    except OSError:  # another file system
        temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
        shutil.copy2(path, temporary)
        temporary.replace(target)
        path.unlink()


def rescue_checkpoint(job: Job, attempt: AttemptFolder, spooled: Path) -> None:
    """What HTCondor carries for an attempt lies in the schedd's spool and goes with the attempt when that is removed: a
    checkpoint is brought here before, complete or not at all. Whoever may not read the spool begins anew."""
    fresh = attempt.root / f".checkpoint.{os.getpid()}.new"
    try:
        if carries_checkpoints(job) and any((spooled / "checkpoint").iterdir()):
            shutil.copytree(spooled / "checkpoint", fresh)
            shutil.rmtree(attempt.checkpoint, ignore_errors=True)
            fresh.rename(attempt.checkpoint)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)


def spooled(spool: str, cluster: int, proc: int) -> Path:
    """Where the schedd keeps the files of a job."""
    return Path(spool, str(cluster % 10_000), str(proc % 10_000), f"cluster{cluster}.proc{proc}.subproc0")


def earlier_checkpoint(ticket: Ticket, folder: RunFolder) -> tuple[str, ...]:
    """The checkpoint that the newest earlier attempt of the job brought back, as an input of the next."""
    if not carries_checkpoints(ticket.job):
        return ()
    number = _number(ticket.decision)
    for earlier in range(number - 1, 0, -1):
        found = folder.attempt(ticket.job.id, f"{ticket.job.id}-{earlier}").checkpoint
        if found.is_dir() and any(found.iterdir()):
            return (str(found),)
    return ()


def _number(decision: str) -> int:
    last = decision.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
