"""sacct: the newest execution of each task."""

from hypothesis import given
from hypothesis import strategies as st

from packtrain.slurm.sacct import parse_sacct, sacct_argv
from packtrain.slurm.squeue import TaskStatus

# Printed by 26.05.5; 22.05.8 prints the same.
OUTPUT = """\
7_0|NODE_FAIL|1:0|main|1795019860|n2|pt-a
7_0|COMPLETED|0:0|main|1795019900|n1|pt-a
7_1|CANCELLED by 1000|0:0|main|Unknown|None assigned|pt-a
7_[2-5]|PENDING|0:0|main|Unknown|None assigned|pt-a
8|FAILED|7:0|main|1795019860|n1|another
"""


def test_tasks():
    restarted, cancelled = parse_sacct(OUTPUT)
    assert restarted == TaskStatus("pt-a", 7, 0, "COMPLETED", "", 1, 0, "main", "n1", 1795019900.0)
    assert (cancelled.state, cancelled.index, cancelled.node, cancelled.started_at) == ("CANCELLED", 1, "", None)


def test_number_that_was_given_to_another_job():
    reused = "7_0|FAILED|1:0|main|1795019860|n2|pt-a\n7_0|RUNNING|0:0|main|1795019900|n1|pt-b\n"
    (newest,) = parse_sacct(reused)
    assert (newest.name, newest.restarts) == ("pt-b", 0)


def test_all_executions_are_requested():
    argv = sacct_argv([7, 8])
    assert "--jobs=7,8" in argv and "--duplicates" in argv and "--allocations" in argv


@given(st.text())
def test_any_output(text):
    assert all(status.array_job >= 0 for status in parse_sacct(text))
