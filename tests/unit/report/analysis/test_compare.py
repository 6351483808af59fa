"""Two reports side by side."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from packtrain.cli.ui.report_summary import show_comparison, show_short
from packtrain.report.analysis.compare import compare, comparison_data
from packtrain.report.analysis.measures import MEASURES, Unit, words_of
from packtrain.report.analysis.statistics import figures_of
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.build import report_on, write_report
from packtrain.report.export import attempts_csv, jobs_csv
from packtrain.report.readers.files import read
from tests.support.histories import random_history
from tests.support.paths import ROOT

GOLDEN = ROOT / "tests" / "golden" / "report"
LOGS = ROOT / "tests" / "data" / "condor-logs"


@pytest.fixture(scope="module")
def two():
    return figures_of(random_history(60, 1, name="new")), figures_of(random_history(60, 2, name="[old]"))


def test_every_figure_has_both_values_and_the_ratio(two):
    ours, theirs = two
    rows = {row.measure.key: row for row in compare(ours, theirs)}
    slots = rows["wallclock_s"]
    assert (slots.ours, slots.theirs) == (ours.wallclock_s, theirs.wallclock_s)
    assert slots.ratio == ours.wallclock_s / theirs.wallclock_s
    assert rows["jobs"].verdict == "", "more jobs are neither better nor worse"
    more, less = rows["success_rate"], rows["completion_mean_s"]
    assert more.verdict == ("better" if more.ours > more.theirs else "worse")
    assert less.verdict == ("better" if less.ours < less.theirs else "worse")


def test_each_way_round(two):
    opposite = {"better": "worse", "worse": "better"}
    there, back = compare(*two), compare(*reversed(two))
    assert [row.verdict for row in back] == [opposite.get(row.verdict, row.verdict) for row in there]


def test_what_one_of_them_cannot_tell():
    table = figures_of(random_history(5, absolute=False, name="table"))
    (row,) = [row for row in compare(figures_of(random_history(5)), table) if row.measure.key == "makespan_s"]
    assert (row.theirs, row.ratio, row.verdict) == (None, None, "")


def test_as_data(two):
    data = json.loads(json.dumps(comparison_data(*two)))
    assert (data["a"], data["b"]) == ("new", "[old]")
    assert set(data["figures"]["useful_share"]) == {"a", "b", "ratio", "verdict"}


def test_the_shares_of_the_table_add_up(two):
    parts = ("useful_compute_s", "useful_transfer_s", "wasted_s")
    found = {measure.key: measure.of(two[0]) for measure in MEASURES}
    assert sum(found[part] for part in parts) == pytest.approx(found["wallclock_s"])


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (None, Unit.SECONDS, "–"),
        (1234, Unit.COUNT, "1,234"),
        (4.31, Unit.RATIO, "4.3"),
        (0.4966, Unit.FRACTION, "50%"),
        (2_740_664, Unit.SECONDS, "761 h"),
        (17845, Unit.DURATION, "4 h 57 min"),
    ],
)
def test_words(value, unit, words):
    assert words_of(value, unit) == words


# What the terminal shows, and the files


def shown(draw, *what, width=100):
    out = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    draw(out, *what)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines()) + "\n"


def test_the_short_table_is_as_it_was():
    report = report_on(random_history(40, 7, name="a [bold]week[/] on the pool"))
    golden = GOLDEN / "short.txt"
    assert shown(show_short, report.figures, report.findings) == golden.read_text(encoding="utf-8")


def test_the_comparison_is_as_it_was(two):
    assert shown(show_comparison, *two) == (GOLDEN / "comparison.txt").read_text(encoding="utf-8")


def test_nothing_is_cut_off_on_a_terminal_of_80_columns():
    report = report_on(random_history(40, 7))
    text = shown(show_short, report.figures, report.findings, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_tables_have_all_jobs_and_attempts_and_their_seconds_add_up():
    figures = figures_of(random_history(50, 3))
    jobs = list(csv.DictReader(io.StringIO(jobs_csv(figures))))
    attempts = list(csv.DictReader(io.StringIO(attempts_csv(figures.accounts))))
    assert (len(jobs), len(attempts)) == (figures.jobs, figures.attempts)
    keys = [f"{share.value.replace(' ', '_')}_s" for share in Share]
    for row in (*jobs, *attempts):
        assert sum(float(row[key]) for key in keys) == pytest.approx(float(row["seconds"]), abs=1e-4)
    assert jobs[0]["job"] == attempts[0]["job"] == figures.rows[0].job


def test_all_files_of_a_report_of_real_logs(tmp_path):
    report = report_on(read([str(LOGS)]))
    page = write_report(report, tmp_path / "deep" / "folder", pngs=False)
    beside = sorted(path.name for path in page.parent.iterdir())
    assert beside == sorted([page.name, "attempts.csv", "jobs.csv", "report.json"])
    document = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["kind"]) == ("packtrain-report", 1, "log")
    assert sum(document["figures"]["shares"].values()) == pytest.approx(document["figures"]["wallclock_s"])
    assert len(document["jobs"]) == document["figures"]["jobs"] == len(report.history.jobs)
