"""At 80 columns and in a pipe: reasons are wrapped, never cut, and numbers are complete."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.events import Failure, kinds
from packtrain.report.build import build_report
from packtrain.report.readers.files import read_history
from packtrain.views.run_table import render_run
from packtrain.views.terminal import make_console
from tests.support.event_builder import RunBuilder
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden" / "report" / "reasons-80-columns.txt"
LOGS = (
    "06-hold-duration-47",
    "08-hold-input-size-32",
    "10-hold-transfer-https-404",
    "16-hold-output-missing",
    "22-osdf-404",
)
URL = "https://data.example.org:8443/a/long/path/to/the/data/of/a/project/imagenet/train-00001-of-01024.tar.gz"
DETAILS = [
    f"{URL} returned 503 Service Unavailable",
    f"{URL}: data.example.org refused the connection",
    f"{URL}: the host name data.example.org does not resolve ([Errno -2] Name or service not known)",
    f"the step 'train' cannot start: /opt/conda/envs/a-very-long-environment-name/bin/python{'/x' * 30} does not exist",
    f"the container image /cvmfs/singularity.opensciencegrid.org/{'a/' * 40}image.sif does not exist",
    f"the output {URL} could not be written: the server returned 507 Insufficient Storage",
]  # fmt: skip


def render(show: Callable[[Console], object], *, in_terminal: bool) -> str:
    out = io.StringIO()
    show(make_console(file=out, width=80, soft_wrap=True, force_terminal=in_terminal, color_system=None))
    return out.getvalue()


def failed_run(detail: str) -> RunBuilder:
    run = RunBuilder()
    run.submit()
    run.start_agent()
    failure = Failure.from_kind("service_unavailable", "fetch", detail).to_data()
    run.add_event("agent-1", kinds.AGENT_ENDED, outcome="failed", exit_code=37, failure=failure, seconds=9.0)
    run.end_attempt()
    return run


def held_run(detail: str) -> RunBuilder:
    run = RunBuilder()
    run.submit()
    hold = {"attempt": "0-1", "action": "release", "code": 13, "kind": "transfer_failed", "detail": detail}
    run.add_event("engine-log", kinds.ATTEMPT_HELD, **hold)
    return run


@pytest.mark.parametrize("in_terminal", [True, False])
@pytest.mark.parametrize("make_run", [failed_run, held_run])
@pytest.mark.parametrize("detail", DETAILS)
def test_reasons_of_a_run(detail: str, make_run: Callable[[str], RunBuilder], in_terminal: bool):
    view = render_run(make_run(detail).state, True, 80)
    lines = render(lambda out: out.print(view), in_terminal=in_terminal).splitlines()
    assert max(map(len, lines)) <= 80
    start = "service_unavailable: " if make_run is failed_run else detail[:10]
    row, column = next((row, line.find(start)) for row, line in enumerate(lines) if start in line)
    assert "".join(detail.split()) in "".join("".join(line[column:].split()) for line in lines[row:])


@pytest.mark.parametrize("in_terminal", [True, False])
def test_reasons_of_reports(in_terminal: bool):
    texts = [render(lambda out, log=log: show_report(out, log), in_terminal=in_terminal) for log in LOGS]
    assert "\n".join(texts) == GOLDEN.read_text(encoding="utf-8")
    assert "…" not in "".join(texts)


def show_report(out: Console, log: str) -> None:
    report = build_report(read_history([str(TESTS_DIR / "data" / "condor-logs" / f"{log}.log")]))
    print_report_summary(out, report.stats, report.findings)


def test_numbers_of_the_study():
    report = build_report(read_history([str(TESTS_DIR / "data" / "study" / "ospool-imagenet-100-jobs.csv")]))
    text = render(lambda out: print_report_summary(out, report.stats, report.findings), in_terminal=True)
    assert "…" not in text
    assert "<0.1%" in text and "1.7%" in text
