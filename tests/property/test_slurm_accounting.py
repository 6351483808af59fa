"""Damaged accounting never raises anything but UsageError, and what can be read gives consistent histories."""

from __future__ import annotations

import contextlib
import gzip
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.errors import UsageError
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.readers.slurm_accounting import read_slurm_accounting
from packtrain.slurm.accounting.parse import is_accounting, parse_accounting
from packtrain.slurm.accounting.text_format import FIELDS
from packtrain.slurm.job_states import JOB_STATES
from tests.support.paths import TESTS_DIR

DATA = TESTS_DIR / "data" / "slurm-accounting"
TEXTS = [(DATA / f"{version}.txt").read_text() for version in ("22.05", "26.05")]
DOCUMENTS = [json.loads(gzip.decompress((DATA / f"{v}.json.gz").read_bytes())) for v in ("22.05", "26.05")]
TIMES = st.integers(1_795_000_000, 1_795_000_300).map(str) | st.sampled_from(["Unknown", "None", ""])
ROWS = st.fixed_dictionaries(
    {
        "JobID": st.sampled_from(["1", "2", "3_1", "3_2", "4+1", "1.batch", "2.0"]),
        "State": st.sampled_from([*JOB_STATES, "CANCELLED by 5", "NEW_STATE"]),
        "ExitCode": st.sampled_from(["0:0", "7:0", "0:9", ""]),
        "Submit": TIMES,
        "Start": TIMES,
        "End": TIMES,
        "ElapsedRaw": st.integers(0, 300).map(str),
        "Suspended": st.sampled_from(["00:00:00", "00:00:20"]),
        "AllocCPUS": st.sampled_from(["", "0", "4"]),
        "AllocTRES": st.sampled_from(["", "cpu=4,gres/gpu=2,mem=4G"]),
        "TotalCPU": st.sampled_from(["", "01:00.5"]),
        "MaxRSS": st.sampled_from(["", "1024K"]),
    }
)


def check_history(text: str) -> None:
    history = read_slurm_accounting([("sacct", parse_accounting(text, "sacct"))])
    for job in history.jobs:
        for execution in job.executions:
            assert execution.spans
            assert all(span.end >= span.start for span in execution.spans)
            assert all(abs(one.end - two.start) < 1e-6 for one, two in pairwise(execution.spans))
        assert all(wait.end > wait.start for wait in job.waits)
    stats = compute_stats(history)
    assert abs(sum(stats.time_use_s.values()) - stats.wallclock_s) < 1e-3


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, max_size=12))
def test_any_rows(rows: list[dict[str, str]]) -> None:
    header = [name for name in (*FIELDS, "Submit") if rows and name in rows[0]] or ["JobID", "State", "Start", "End"]
    columns = list(dict.fromkeys(header))
    lines = ["|".join(columns), *("|".join(row[name] for name in columns) for row in rows)]
    check_history("\n".join(lines))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_damaged_text(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 300)))
    damaged = text[:start] + data.draw(st.text(max_size=20)) + text[end:]
    if is_accounting(damaged):
        with contextlib.suppress(UsageError):
            check_history(damaged)


JSON_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**64), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_damaged_json(document: dict[str, Any], data: st.DataObject) -> None:
    """Any value of a job may be missing or something else."""
    job = json.loads(json.dumps(data.draw(st.sampled_from(document["jobs"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        target: Any = job
        while True:
            key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
            if isinstance(target[key], (dict, list)) and target[key] and data.draw(st.booleans()):
                target = target[key]
                continue
            target[key] = data.draw(JSON_VALUES)
            break
        if not job:
            break
    check_history(json.dumps({"jobs": [job]}))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_truncated_json(document: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(document, indent=1)
    with contextlib.suppress(UsageError):
        check_history(text[: data.draw(st.integers(10, len(text)))])
