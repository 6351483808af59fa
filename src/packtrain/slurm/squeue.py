"""The queue as `squeue` prints it, in a text format that all versions since 22.05 know."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# `:|` ends a field with a bar and does not cut it. The reason is last because it may contain anything.
_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "State", "RestartCnt", "exit_code", "Partition", "StartTime", "Name", "NodeList",
)  # fmt: skip
_FORMAT = ",".join(f"{field}:|" for field in (*_FIELDS, "Reason"))
_UNSET = frozenset({"", "N/A", "(null)", "n/a", "None"})


@dataclass(frozen=True)
class TaskStatus:
    """One array task in the queue.

    Attributes:
        name: The job name.
        array_job: Number of the array.
        index: Index of the task in the array.
        state: Slurm's word, a key of `job_states.JOB_STATES`.
        reason: Why the job does not start, or how it ended.
        restarts: How often Slurm has restarted the task.
        exit_code: Exit code of the batch script; minus the signal that killed it; None if it has not ended.
        partition: The partition, or several with commas while the job waits.
        node: The node it runs or ran on; "" if none.
        started_at: Unix time of the current start, or the estimate of a pending job; None if unknown.
    """

    name: str
    array_job: int
    index: int
    state: str
    reason: str = ""
    restarts: int = 0
    exit_code: int | None = None
    partition: str = ""
    node: str = ""
    started_at: float | None = None

    @property
    def native_id(self) -> str:
        """The name of the task in all commands: `ARRAY_INDEX`, never the bare number."""
        return f"{self.array_job}_{self.index}"


def squeue_argv(names: Sequence[str]) -> list[str]:
    """Return the command that lists all tasks of the jobs with these names, also recently ended ones.

    The environment must have SLURM_TIME_FORMAT=%s.
    """
    return ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", f"--Format={_FORMAT}"]


def parse_squeue(output: str) -> Iterator[TaskStatus]:
    """Parse the output of `squeue_argv`. Jobs that are not arrays are left out."""
    for line in output.splitlines():
        values = line.split("|", len(_FIELDS))
        if len(values) == len(_FIELDS) + 1:
            row = dict(zip(_FIELDS, map(str.strip, values), strict=False))
            if row["ArrayJobID"].isdigit() and row["ArrayTaskID"].isdigit():
                yield _parse_row(row, values[-1].strip().removesuffix("|"))


def _parse_row(row: dict[str, str], reason: str) -> TaskStatus:
    return TaskStatus(
        name=row["Name"],
        array_job=int(row["ArrayJobID"]),
        index=int(row["ArrayTaskID"]),
        state=row["State"],
        reason=reason,
        restarts=_parse_int(row["RestartCnt"]) or 0,
        exit_code=parse_exit_code(row["exit_code"]),
        partition=row["Partition"],
        node="" if row["NodeList"] in _UNSET else row["NodeList"],
        started_at=parse_time(row["StartTime"]),
    )


def parse_exit_code(text: str) -> int | None:
    """Return an exit code, or minus the number of a signal.

    Slurm writes `7:0` or `0:9`; squeue of 22.05 writes the status of wait(2) instead, for example 1792 for exit code 7.
    """
    code, separator, signal_number = text.partition(":")
    if separator:
        exit_code, number = _parse_int(code), _parse_int(signal_number.split(" ")[0])
        return None if exit_code is None or number is None else -number if number else exit_code
    status = _parse_int(code)
    if status is None:
        return None
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _parse_int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def parse_time(text: str) -> float | None:
    """Return a Unix time that a command printed with SLURM_TIME_FORMAT=%s, or None."""
    value = _parse_int(text)
    return float(value) if value else None
