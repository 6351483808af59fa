"""What stands at the end of a run of what its report says: the two figures that count; of long ones what was found."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from packtrain.cli.ui.run_summary import _print_report_headline
from packtrain.report.build import build_report
from packtrain.report.history import ExecutionRecord, JobHistory, JobRecord, Outcome, Phase, PhaseSpan


def end_of_run(seconds, *outcomes):
    """One attempt each: a tenth of it transfer, the rest compute."""
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, seconds / 10), PhaseSpan(Phase.EXECUTE, seconds / 10, seconds))
    jobs = (
        JobRecord(str(n), (ExecutionRecord(1, spans, outcome),), outcome, 0.0, seconds)
        for n, outcome in enumerate(outcomes)
    )
    out = Console(file=io.StringIO(), width=100, highlight=False, color_system=None)
    _print_report_headline(out, build_report(JobHistory("a run", "run", tuple(jobs))))
    return out.file.getvalue()


def test_a_run_of_hours_says_what_was_found():
    text = end_of_run(36_000, Outcome.SUCCEEDED, Outcome.FAILED)
    assert text.startswith("\nsuccess rate 50%, useful share 50% of 20.0 h of slots\n• ")
    assert "1 of 2 jobs did not succeed" in text


def test_a_run_of_seconds_says_it_in_one_line():
    assert end_of_run(10, Outcome.SUCCEEDED) == "\nsuccess rate 100%, useful share 100% of 10 s of slots\n"


@pytest.mark.parametrize("outcomes", [(), (Outcome.RUNNING,)])
def test_what_nobody_can_tell_is_not_said(outcomes):
    assert "success rate" not in end_of_run(10, *outcomes)
