"""Two reports side by side."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from packtrain.cli.ui.report_summary import print_comparison, print_report_summary
from packtrain.report.analysis.compare import compare_stats, comparison_to_json
from packtrain.report.analysis.measures import MEASURES, Unit, format_value
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report, write_report
from packtrain.report.export import executions_to_csv, jobs_to_csv
from packtrain.report.readers.files import read_history
from tests.support.histories import make_random_history
from tests.support.paths import PROJECT_ROOT

GOLDEN = PROJECT_ROOT / "tests" / "golden" / "report"
LOGS = PROJECT_ROOT / "tests" / "data" / "condor-logs"


@pytest.fixture(scope="module")
def two():
    return compute_stats(make_random_history(60, 1, name="new")), compute_stats(
        make_random_history(60, 2, name="[old]")
    )


def test_every_figure_has_both_values_and_the_ratio(two):
    ours, theirs = two
    rows = {row.measure.key: row for row in compare_stats(ours, theirs)}
    slots = rows["wallclock_s"]
    assert (slots.current, slots.baseline) == (ours.wallclock_s, theirs.wallclock_s)
    assert slots.ratio == ours.wallclock_s / theirs.wallclock_s
    assert rows["jobs"].change == "", "more jobs are neither better nor worse"
    more, less = rows["success_rate"], rows["completion_mean_s"]
    assert more.change == ("better" if more.current > more.baseline else "worse")
    assert less.change == ("better" if less.current < less.baseline else "worse")


def test_each_way_round(two):
    opposite = {"better": "worse", "worse": "better"}
    there, back = compare_stats(*two), compare_stats(*reversed(two))
    assert [row.change for row in back] == [opposite.get(row.change, row.change) for row in there]


def test_what_one_of_them_cannot_tell():
    table = compute_stats(make_random_history(5, absolute=False, name="table"))
    (row,) = [
        row for row in compare_stats(compute_stats(make_random_history(5)), table) if row.measure.key == "makespan_s"
    ]
    assert (row.baseline, row.ratio, row.change) == (None, None, "")


def test_as_data(two):
    data = json.loads(json.dumps(comparison_to_json(*two)))
    assert (data["a"], data["b"]) == ("new", "[old]")
    assert set(data["figures"]["useful_share"]) == {"a", "b", "ratio", "verdict"}


def test_the_shares_of_the_table_add_up(two):
    parts = ("useful_compute_s", "useful_transfer_s", "wasted_s")
    found = {measure.key: measure.compute(two[0]) for measure in MEASURES}
    assert sum(found[part] for part in parts) == pytest.approx(found["wallclock_s"])


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (None, Unit.SLOT_SECONDS, "–"),
        (1234, Unit.COUNT, "1,234"),
        (4.31, Unit.RATIO, "4.3"),
        (0.4966, Unit.FRACTION, "50%"),
        (2_740_664, Unit.SLOT_SECONDS, "761 h"),
        (17845, Unit.DURATION, "4 h 57 min"),
    ],
)
def test_words(value, unit, words):
    assert format_value(value, unit) == words


# What the terminal shows, and the files


def shown(draw, *what, width=100):
    out = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    draw(out, *what)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines()) + "\n"


def test_the_short_table_is_as_it_was():
    report = build_report(make_random_history(40, 7, name="a [bold]week[/] on the pool"))
    golden = GOLDEN / "short.txt"
    assert shown(print_report_summary, report.stats, report.insights) == golden.read_text(encoding="utf-8")


def test_the_comparison_is_as_it_was(two):
    assert shown(print_comparison, *two) == (GOLDEN / "comparison.txt").read_text(encoding="utf-8")


def test_nothing_is_cut_off_on_a_terminal_of_80_columns():
    report = build_report(make_random_history(40, 7))
    text = shown(print_report_summary, report.stats, report.insights, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_tables_have_all_jobs_and_attempts_and_their_seconds_add_up():
    figures = compute_stats(make_random_history(50, 3))
    jobs = list(csv.DictReader(io.StringIO(jobs_to_csv(figures))))
    attempts = list(csv.DictReader(io.StringIO(executions_to_csv(figures.job_time_use))))
    assert (len(jobs), len(attempts)) == (figures.jobs, figures.executions)
    keys = [f"{share.value.replace(' ', '_')}_s" for share in TimeUse]
    for row in (*jobs, *attempts):
        assert sum(float(row[key]) for key in keys) == pytest.approx(float(row["seconds"]), abs=1e-4)
    assert jobs[0]["job"] == attempts[0]["job"] == figures.job_summaries[0].job


def test_all_files_of_a_report_of_real_logs(tmp_path):
    report = build_report(read_history([str(LOGS)]))
    page = write_report(report, tmp_path / "deep" / "folder", write_pngs=False)
    beside = sorted(path.name for path in page.parent.iterdir())
    assert beside == sorted([page.name, "attempts.csv", "jobs.csv", "report.json"])
    document = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["kind"]) == ("packtrain-report", 1, "log")
    assert sum(document["figures"]["shares"].values()) == pytest.approx(document["figures"]["wallclock_s"])
    assert len(document["jobs"]) == document["figures"]["jobs"] == len(report.history.jobs)
