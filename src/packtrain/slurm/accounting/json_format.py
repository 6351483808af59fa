"""Parses `sacct --json` of Slurm 22.05 and newer.

The versions differ in how they write the same values. A number is 3 or `{"set": true, "infinite": false, "number": 3}`,
a state is "FAILED" or ["FAILED"], where further states are flags. 22.05 writes no sum of CPU time for a job, and the
exit code 0 for a job that failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packtrain.errors import UsageError
from packtrain.slurm.accounting import values
from packtrain.slurm.accounting.record import AccountingRecord, AccountingTable, UnreadableRow
from packtrain.slurm.accounting.text_format import shorten

_START = re.compile(r'\s*\{\s*"(?:jobs|meta|errors|warnings)"\s*:')
_MIB = float(1 << 20)

Json = Mapping[str, Any]


def is_accounting_json(head: str) -> bool:
    """Return whether a file that begins with `head` is the output of `sacct --json`."""
    return _START.match(head) is not None


def parse_json(text: str, path: str) -> AccountingTable:
    """Parse the output of sacct.

    Args:
        text: The complete output.
        path: The name of the file, for messages.

    Raises:
        UsageError: It is not valid JSON, or has no list of jobs.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise UsageError(f"{path}, line {line}: not valid JSON; is the output of `sacct --json` complete?") from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise UsageError(f"{path}, line 1: there is no list `jobs`, as `sacct --json` writes it")
    records, unreadable = [], []
    for number, job in enumerate(jobs, 1):
        try:
            records.append(_parse_job(_object(job)))
        except ValueError as error:
            unreadable.append(UnreadableRow(_line_of_job(text, number), f"entry {number} of `jobs`: {error}"))
    return AccountingTable(records, unreadable)


def _line_of_job(text: str, number: int) -> int:
    """Return the line in which the job begins, or 1 if that cannot be determined."""
    starts = [match.start() for match in re.finditer(r'"job_id"\s*:\s*\d+\s*,\s*"name"', text)]
    return text.count("\n", 0, starts[number - 1]) + 1 if len(starts) >= number else 1


def _parse_job(job: Json) -> AccountingRecord:
    time, steps = _object(job.get("time")), [_object(step) for step in _list(job.get("steps"))]
    states = _states(_object(job.get("state")).get("current"))
    tres = _list(_object(job.get("tres")).get("allocated")) or _list(_object(job.get("tres")).get("requested"))
    nodes = _text(job.get("nodes"))
    started_at = _time(time.get("start"))
    has_started = started_at is not None and not values.is_unset(nodes)
    limit_minutes = _number(time.get("limit"))
    return AccountingRecord(
        job_id=_job_id(job),
        state="REQUEUED" if "REQUEUED" in states else states[0],  # newer versions add it to PENDING
        name=shorten(_text(job.get("name"))),
        user=shorten(_text(job.get("user")) or _text(_object(job.get("association")).get("user"))),
        partition=shorten(_text(job.get("partition"))),
        reason=_reason(job),
        exit_code=_job_exit_code(job, steps, states[0]),
        submitted_at=_time(time.get("submission")),
        started_at=started_at if has_started else None,
        ended_at=_time(time.get("end")),
        elapsed_s=_number(time.get("elapsed")),
        suspended_s=_number(time.get("suspended")) or 0.0,
        time_limit_s=None if limit_minutes is None else 60 * limit_minutes,
        nodes=shorten(nodes) if has_started else "",
        cpus=_tres_count(tres, "cpu"),
        gpus=_count_gpus(tres),
        cpu_s=max([seconds for seconds in (_cpu_s(time), _sum_cpu_s(steps)) if seconds is not None], default=None),
        memory_bytes=_memory_bytes(tres),
        peak_memory_bytes=max([peak for step in steps if (peak := _peak_bytes(step)) is not None], default=None),
        restarts=int(_number(job.get("restart_cnt")) or 0),
        cluster=shorten(_text(job.get("cluster"))),
    )


def _job_id(job: Json) -> str:
    number, array = _number(job.get("job_id")), _object(job.get("array"))
    if not number:
        raise ValueError("there is no `job_id`")
    array_job, task = _number(array.get("job_id")), array.get("task_id")
    task_number = _number(task)
    if array_job and task_number is not None:
        return f"{array_job:.0f}_{task_number:.0f}"
    heterogeneous = _object(job.get("het"))
    first, offset = _number(heterogeneous.get("job_id")), _number(heterogeneous.get("job_offset"))
    return f"{first:.0f}+{offset:.0f}" if first and offset is not None else f"{number:.0f}"


def _reason(job: Json) -> str:
    reason = _text(_object(job.get("state")).get("reason"))
    return "" if values.is_unset(reason) else shorten(reason)


def _job_exit_code(job: Json, steps: Sequence[Json], state: str) -> int | None:
    """Return the exit code of the job; if it is 0 although the job failed, that of its batch script."""
    code = _exit_code(_object(job.get("exit_code")))
    if code == 0 and state == "FAILED":
        return next((code for step in steps if (code := _exit_code(_object(step.get("exit_code"))))), None)
    return code


def _exit_code(data: Json) -> int | None:
    """Return an exit code, or minus the number of a signal."""
    signal = _object(data.get("signal"))
    number = _number(signal.get("id", signal.get("signal_id")))
    if number:
        return -int(number)
    code = _number(data.get("return_code"))
    return None if code is None else int(code)


def _peak_bytes(step: Json) -> float | None:
    used = _list(_object(_object(step.get("tres")).get("requested")).get("max"))  # Slurm's name for usage
    peak = _tres_count(used, "mem")
    return None if peak is None else peak * (_number(_object(step.get("tasks")).get("count")) or 1.0)


def _sum_cpu_s(steps: Sequence[Json]) -> float | None:
    known = [seconds for step in steps if (seconds := _cpu_s(_object(step.get("time")))) is not None]
    return sum(known) if known else None


def _cpu_s(time: Json) -> float | None:
    total = _object(time.get("total"))
    seconds = _number(total.get("seconds"))
    return None if seconds is None else seconds + (_number(total.get("microseconds")) or 0.0) / 1e6


def _memory_bytes(tres: Sequence[Any]) -> float | None:
    mebibytes = _tres_count(tres, "mem")
    return mebibytes * _MIB if mebibytes else None


def _tres_entries(tres: Sequence[Any]) -> Iterator[tuple[str, str, float]]:
    for entry in map(_object, tres):
        count = _number(entry.get("count"))
        if count is not None:
            yield _text(entry.get("type")), _text(entry.get("name")), count


def _tres_count(tres: Sequence[Any], kind: str) -> float | None:
    return next((count for type_, _, count in _tres_entries(tres) if type_ == kind), None)


def _count_gpus(tres: Sequence[Any]) -> float:
    counts = {f"{kind}/{name}": f"{count:.0f}" for kind, name, count in _tres_entries(tres)}
    return values.count_gpus(counts)


def _states(value: Any) -> list[str]:
    states = [_text(state).upper() for state in (value if isinstance(value, list) else [value])]
    if not states or not states[0]:
        raise ValueError("there is no state")
    return states


def _time(value: Any) -> float | None:
    number = _number(value)
    return values.parse_time(f"{number:.0f}") if number else None


def _number(value: Any) -> float | None:
    """Return a number of either form; None if it is not set: Slurm also writes -2 then. Raises ValueError for text."""
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set", True) and not value.get("infinite") else None
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{shorten(str(value))!r} is not a number")
    return value if 0 <= value <= values.MAX_AMOUNT else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{shorten(json.dumps(value))} is not an object")
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
