"""The report in the summary of a run: the headline, and findings for long runs."""

from __future__ import annotations

import io

import pytest

from packtrain.cli.ui.run_summary import _print_report_headline
from packtrain.report.build import build_report
from packtrain.report.history import ExecutionRecord, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.views.terminal import make_console


def headline(seconds, *outcomes):
    """Return the headline of jobs with one execution each: a tenth of it transfer, the rest compute."""
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, seconds / 10), PhaseSpan(Phase.EXECUTE, seconds / 10, seconds))
    jobs = (
        JobRecord(str(n), (ExecutionRecord(1, spans, outcome),), outcome, 0.0, seconds)
        for n, outcome in enumerate(outcomes)
    )
    out = make_console(file=io.StringIO(), width=100, color_system=None)
    _print_report_headline(out, build_report(JobHistory("a run", "run", tuple(jobs))))
    return out.file.getvalue()


def test_long_run_has_findings():
    text = headline(36_000, Outcome.SUCCEEDED, Outcome.FAILED)
    assert text.startswith("\nsuccess rate 50%, useful share 50% of 20 h of slots\n• ")
    assert "1 of 2 jobs did not succeed" in text


def test_short_run_has_one_line():
    assert headline(10, Outcome.SUCCEEDED) == "\nsuccess rate 100%, useful share 100% of 10 s of slots\n"


@pytest.mark.parametrize("outcomes", [(), (Outcome.RUNNING,)])
def test_unknown_success_rate_is_omitted(outcomes):
    assert "success rate" not in headline(10, *outcomes)
