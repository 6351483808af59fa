"""Comparison of two reports, the terminal summary, and the files of a report."""

from __future__ import annotations

import csv
import io
import json

import pytest

from packtrain.cli.ui.report_summary import print_comparison, print_report_summary
from packtrain.report.analysis.compare import compare_stats, comparison_to_json
from packtrain.report.analysis.measures import MEASURES, Unit, format_value
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report, write_report
from packtrain.report.export import executions_to_csv, jobs_to_csv
from packtrain.report.readers.files import read_history
from packtrain.views.terminal import make_console
from tests.support.histories import make_random_history
from tests.support.paths import PROJECT_ROOT

GOLDEN = PROJECT_ROOT / "tests" / "golden" / "report"
LOGS = PROJECT_ROOT / "tests" / "data" / "condor-logs"


@pytest.fixture(scope="module")
def pair():
    return tuple(compute_stats(make_random_history(60, seed, name=name)) for seed, name in ((1, "new"), (2, "[old]")))


def test_values_ratio_and_change(pair):
    current, baseline = pair
    rows = {row.measure.key: row for row in compare_stats(current, baseline)}
    slots = rows["wallclock_s"]
    assert (slots.current, slots.baseline) == (current.wallclock_s, baseline.wallclock_s)
    assert slots.ratio == current.wallclock_s / baseline.wallclock_s
    assert rows["jobs"].change == "", "more jobs are neither better nor worse"
    higher_is_better, lower_is_better = rows["success_rate"], rows["completion_mean_s"]
    assert higher_is_better.change == ("better" if higher_is_better.ratio > 1 else "worse")
    assert lower_is_better.change == ("better" if lower_is_better.ratio < 1 else "worse")


def test_change_is_symmetric(pair):
    opposite = {"better": "worse", "worse": "better"}
    forward, backward = compare_stats(*pair), compare_stats(*reversed(pair))
    assert [row.change for row in backward] == [opposite.get(row.change, row.change) for row in forward]


def test_unknown_value():
    table = compute_stats(make_random_history(5, absolute=False, name="table"))
    rows = {row.measure.key: row for row in compare_stats(compute_stats(make_random_history(5)), table)}
    makespan = rows["makespan_s"]
    assert (makespan.baseline, makespan.ratio, makespan.change) == (None, None, "")


def test_json(pair):
    data = json.loads(json.dumps(comparison_to_json(*pair)))
    assert (data["current"], data["baseline"]) == ("new", "[old]")
    assert set(data["statistics"]["useful_share"]) == {"current", "baseline", "ratio", "change"}


def test_time_uses_add_up(pair):
    parts = ("useful_compute_s", "useful_transfer_s", "wasted_s")
    values = {measure.key: measure.compute(pair[0]) for measure in MEASURES}
    assert sum(values[part] for part in parts) == pytest.approx(values["wallclock_s"])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Unit.SLOT_SECONDS, "–"),
        (1234, Unit.COUNT, "1,234"),
        (4.31, Unit.RATIO, "4.3"),
        (0.4966, Unit.FRACTION, "50%"),
        (2_740_664, Unit.SLOT_SECONDS, "761 h"),
        (17845, Unit.DURATION, "4 h 57 min"),
    ],
)
def test_format_value(value, unit, text):
    assert format_value(value, unit) == text


# Terminal output and files


def rendered(draw, *arguments, width=100):
    out = make_console(file=io.StringIO(), width=width, color_system=None)
    draw(out, *arguments)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines()) + "\n"


def test_summary_matches_golden_file():
    report = build_report(make_random_history(40, 7, name="a [bold]week[/] on the pool"))
    golden = GOLDEN / "short.txt"
    assert rendered(print_report_summary, report.stats, report.findings) == golden.read_text(encoding="utf-8")


def test_comparison_matches_golden_file(pair):
    assert rendered(print_comparison, *pair) == (GOLDEN / "comparison.txt").read_text(encoding="utf-8")


def test_summary_fits_into_80_columns():
    report = build_report(make_random_history(40, 7))
    text = rendered(print_report_summary, report.stats, report.findings, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_csv_rows_add_up():
    stats = compute_stats(make_random_history(50, 3))
    jobs = list(csv.DictReader(io.StringIO(jobs_to_csv(stats))))
    executions = list(csv.DictReader(io.StringIO(executions_to_csv(stats.job_time_use))))
    assert (len(jobs), len(executions)) == (stats.jobs, stats.executions)
    columns = [f"{use.value.replace(' ', '_')}_s" for use in TimeUse]
    totals = [(row, row["slot_s"]) for row in jobs] + [(row, row["duration_s"]) for row in executions]
    for row, total in totals:
        assert sum(float(row[column]) for column in columns) == pytest.approx(float(total), abs=1e-4)
    assert jobs[0]["job"] == executions[0]["job"] == stats.job_summaries[0].job


def test_report_files(tmp_path):
    report = build_report(read_history([str(LOGS)]))
    page = write_report(report, tmp_path / "deep" / "folder", write_pngs=False)
    names = sorted(path.name for path in page.parent.iterdir())
    assert names == sorted([page.name, "executions.csv", "jobs.csv", "report.json"])
    document = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["kind"]) == ("packtrain-report", 2, "log")
    stats = document["statistics"]
    assert sum(stats["time_use_s"].values()) == pytest.approx(stats["wallclock_s"])
    assert len(document["jobs"]) == stats["jobs"] == len(report.history.jobs)
