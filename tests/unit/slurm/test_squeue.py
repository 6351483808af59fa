"""squeue: parsing the queue."""

import pytest

from packtrain.slurm.squeue import TaskStatus, parse_exit_code, parse_squeue, squeue_argv

# Printed by 22.05.8, which writes the status of wait(2), and by 26.05.5.
OUTPUT_22 = """\
1|2|PENDING|0|0|main|1795023420|pt-a||None|
1|0|RUNNING|1|0|main|1795019860|pt-a|n2|None|
3|N/A|RUNNING|0|0|main|1795019860|pt-b|n3|None|
1|3|FAILED|0|768|main|1795019863|pt-a|n2|NonZeroExitCode|
"""
OUTPUT_26 = """\
2|0|PENDING|0|0:0|main,low|N/A|pt-a||ReqNodeNotAvail, UnavailableNodes:n[1-2]|
1|1|FAILED|0|0:9|main|1795019869|pt-a|n2|RaisedSignal:9(Killed)|
"""


def test_old_version():
    pending, running, failed = parse_squeue(OUTPUT_22)
    assert pending == TaskStatus(
        "pt-a", 1, 2, "PENDING", "None", exit_code=0, partition="main", started_at=1795023420.0
    )
    assert (running.restarts, running.node, running.native_id) == (1, "n2", "1_0")
    assert (failed.state, failed.exit_code, failed.reason) == ("FAILED", 3, "NonZeroExitCode")


def test_new_version():
    pending, killed = parse_squeue(OUTPUT_26)
    assert pending.reason == "ReqNodeNotAvail, UnavailableNodes:n[1-2]"
    assert (pending.started_at, pending.partition) == (None, "main,low")
    assert killed.exit_code == -9


def test_other_lines_are_ignored():
    assert list(parse_squeue("slurm_load_jobs error\n\n1|x|RUNNING\n")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7:0", 7),
        ("0:9", -9),
        ("0:125", -125),
        ("0:0", 0),
        ("1792", 7),
        ("9", -9),
        ("15", -15),
        ("", None),
        ("N/A", None),
    ],
)
def test_exit_codes(text, expected):
    assert parse_exit_code(text) == expected


def test_names_are_listed_once():
    assert "--name=a,b" in squeue_argv(["a", "b"])
