"""The tasks of arrays as `sacct` lists them: how tasks ended that squeue no longer knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from packtrain.slurm.squeue import TaskStatus, parse_exit_code, parse_time

_FIELDS = ("JobID", "State", "ExitCode", "Partition", "Start", "NodeList", "JobName")  # all versions know these
_TASK_ID = re.compile(r"(\d+)_(\d+)")
_NO_NODE = ("", "None assigned")


def sacct_argv(array_jobs: Sequence[int]) -> list[str]:
    """Return the command that lists all executions of all tasks of arrays, without their steps.

    The environment must have SLURM_TIME_FORMAT=%s.
    """
    jobs = ",".join(map(str, array_jobs))
    return [
        "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={jobs}",
        f"--format={','.join(_FIELDS)}",
    ]  # fmt: skip


def parse_sacct(output: str) -> Iterator[TaskStatus]:
    """Yield the newest execution of each task. Each earlier one is a restart."""
    rows: dict[str, list[str]] = {}
    n_executions: Counter[tuple[str, str]] = Counter()
    for line in output.splitlines():
        values = line.split("|", len(_FIELDS) - 1)
        if len(values) == len(_FIELDS) and _TASK_ID.fullmatch(values[0]):
            n_executions[values[0], values[-1]] += 1
            rows[values[0]] = values
    for task_id, (_, state, exit_code, partition, start, node, name) in rows.items():
        match = _TASK_ID.fullmatch(task_id)
        assert match
        yield TaskStatus(
            name=name,
            array_job=int(match[1]),
            index=int(match[2]),
            state=state.split(" ")[0],  # `CANCELLED by 1000`
            restarts=n_executions[task_id, name] - 1,
            exit_code=parse_exit_code(exit_code),
            partition=partition,
            node="" if node in _NO_NODE else node,
            started_at=parse_time(start),
        )
