"""Submissions: attempts with equal options, grouped into one job array, and stored before sbatch is called.

The file `NAME.json` in the run's folder says which attempt each task of the array is. It exists before Slurm knows the
array, so after a crash, or when the answer of sbatch is lost, the engine can ask Slurm for the name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.engines.slurm.batch_script import TASKS_SUFFIX
from packtrain.fileutil import atomic_write, durable_mkdir
from packtrain.plan import RunFolder

_NAME_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_NAME_PREFIX, _RECORD_SUFFIX = "pt-", ".json"


@dataclass(frozen=True)
class Task:
    """One task of an array: the attempt that it runs."""

    attempt_id: str
    job_id: str


@dataclass(frozen=True)
class ArraySubmission:
    """One job array.

    Attributes:
        name: The unique job name.
        tasks: The attempts by array index.
    """

    name: str
    tasks: tuple[Task, ...]


def new_name(run: str) -> str:
    """Return a job name that no other submission has."""
    return f"{_NAME_PREFIX}{_NAME_FORBIDDEN.sub('-', run)[:80]}-{os.urandom(4).hex()}"


def write_submission(submission: ArraySubmission, script: str, folder: RunFolder) -> Path:
    """Store the script, the tasks file that it reads, and last the record; return the path of the script."""
    durable_mkdir(folder.slurm)
    path = folder.slurm / f"{submission.name}.sh"
    lines = "".join(f"{task.job_id} {task.attempt_id}\n" for task in submission.tasks)
    atomic_write(path, script, durable=True)
    atomic_write(path.with_suffix(TASKS_SUFFIX), lines, durable=True)
    record = {"name": submission.name, "tasks": [[task.attempt_id, task.job_id] for task in submission.tasks]}
    atomic_write(path.with_suffix(_RECORD_SUFFIX), json.dumps(record), durable=True)
    return path


def remove_submission(submission: ArraySubmission, folder: RunFolder) -> None:
    """Remove a stored submission that Slurm refused; the record first, so that no other process finds half of it."""
    path = script_path(submission, folder)
    for suffix in (_RECORD_SUFFIX, TASKS_SUFFIX, path.suffix):
        path.with_suffix(suffix).unlink(missing_ok=True)


def script_path(submission: ArraySubmission, folder: RunFolder) -> Path:
    """Return the path of a stored batch script."""
    return folder.slurm / f"{submission.name}.sh"


def read_submissions(folder: RunFolder, known_names: Iterable[str] = ()) -> Iterator[ArraySubmission]:
    """Yield the stored submissions of a run, except those with known names."""
    known = set(known_names)
    for path in sorted(folder.slurm.glob(f"{_NAME_PREFIX}*{_RECORD_SUFFIX}")):
        if path.stem not in known:
            record = json.loads(path.read_text(encoding="utf-8"))
            yield ArraySubmission(record["name"], tuple(Task(*task) for task in record["tasks"]))


def split_tasks(tasks: Sequence[Task], max_tasks: int) -> Iterator[tuple[Task, ...]]:
    """Divide tasks into arrays of at most `max_tasks`."""
    for start in range(0, len(tasks), max_tasks):
        yield tuple(tasks[start : start + max_tasks])
