"""The page is complete in itself, says what was found, and nothing from a log can become a part of it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings

from packtrain.report.analysis.findings import Insight, find_insights
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import USEFUL
from packtrain.report.charts.palette import ALL_COLORS
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
    ReadProblem,
)
from packtrain.report.page import sections, tables, write_page
from packtrain.report.page.render import DARK_THEME
from tests.support.histories import make_random_history
from tests.support.history_strategies import HOSTILE_TEXT, job_histories


class Parsed(HTMLParser):
    """The elements of a page, and the text of each kind of them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, tag):
        return "".join(self.texts.get(tag, []))


def written(history, folder, findings=None, **more):
    figures = compute_stats(history)
    path = write_page(
        history, figures, find_insights(history, figures) if findings is None else findings, folder, **more
    )
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    return written(make_random_history(1000), tmp_path_factory.mktemp("page"), write_pngs=False)


def test_it_asks_for_nothing(thousand):
    assert set(re.findall(r"https?://[^\s\"'<]*", thousand)) == {"http://www.w3.org/2000/svg"}
    page = Parsed(thousand)
    assert not [tag for tag, _ in page.tags if tag in {"img", "iframe", "object", "embed", "base", "form"}]
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "@import" not in thousand
    assert "url(" not in thousand


def test_only_its_own_script_may_run(thousand):
    page = Parsed(thousand)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(page.text(tag).encode()).digest()).decode()
        assert len(page.all(tag)) == 1
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_thousand_jobs_make_a_small_page(thousand):
    assert len(thousand.encode()) < 3_000_000
    assert len(re.findall(r"<tr>", thousand)) > 2000
    assert "{{" not in thousand


def hostile():
    span = (PhaseSpan(Phase.TRANSFER_IN, 0, 60), PhaseSpan(Phase.EXECUTE, 60, 100))
    bad = ExecutionRecord(1, span, Outcome.FAILED, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, FailureCategory.PROGRAM)
    jobs = tuple(
        JobRecord(f"{HOSTILE_TEXT}{n}", (bad,), Outcome.FAILED, 0.0, 100.0, reason=HOSTILE_TEXT) for n in range(20)
    )
    return JobHistory(
        HOSTILE_TEXT, HOSTILE_TEXT, jobs, (ReadProblem(HOSTILE_TEXT, 3, HOSTILE_TEXT),), 2, (HOSTILE_TEXT,)
    )


def test_names_and_reasons_cannot_become_parts_of_the_page(tmp_path):
    page = Parsed(written(hostile(), tmp_path, [Insight(HOSTILE_TEXT, 1.0), Insight(HOSTILE_TEXT, 0.5)]))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert "alert('x')" in page.text("td"), "it is shown as it is"
    assert "{{script}}" in page.text("h1")
    assert "\x00" not in (tmp_path / "index.html").read_text()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job_histories())
def test_of_any_history_a_page_can_be_written(tmp_path, history):
    page = Parsed(written(history, tmp_path, write_pngs=False))
    assert len(page.all("script")) == 1
    assert len(page.all("h1")) == 1


def test_no_jobs_at_all(tmp_path):
    page = Parsed(written(JobHistory("nothing", "log", ()), tmp_path, []))
    assert "There is nothing to tell yet." in page.text("p")
    assert not page.all("table")
    assert not page.all("figure")


def test_what_holds_and_failed_jobs_cost_is_among_the_figures(tmp_path):
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 900), PhaseSpan(Phase.EXECUTE, 900, 9900))
    good = ExecutionRecord(1, spans, Outcome.SUCCEEDED, "A")
    bad = ExecutionRecord(1, spans[:1], Outcome.HELD, "A", category=FailureCategory.TRANSFER)
    held = {"outcome": Outcome.HELD, "category": FailureCategory.TRANSFER}
    jobs = (
        JobRecord("1", (good,), Outcome.SUCCEEDED),
        JobRecord("2", (bad,), **held, held_in_phase=Phase.TRANSFER_IN),
        JobRecord("3", (), **held),
    )
    texts = Parsed(written(JobHistory("few", "log", jobs), tmp_path, pngs=False)).texts["p"]
    cards = [texts[at : at + 3] for at in range(len(texts)) if texts[at] in CARDS]
    assert cards == [
        ["Transfer overhead", "10%", "useful transfer / useful compute"],
        ["Lost to failed jobs", "0.2\u00a0h", "8.3% of all, by 2\u00a0jobs"],
        ["Jobs held for good", "2", "1 in transfer, 1 elsewhere"],
    ]


CARDS = ("Transfer overhead", "Lost to failed jobs", "Jobs held for good")


def test_sites_are_shown_with_their_spread():
    figures = compute_stats(make_random_history(200))
    grid = next(grid for grid in tables.build_tables(make_random_history(200), figures) if grid.element_id == "spreads")
    names = [column.name for column in grid.columns]
    found = {row[1].text: dict(zip(names, row, strict=True)) for row in grid.rows[:2]}
    for what, spread in (("compute", figures.sites[0].compute_time_s), ("transfer", figures.sites[0].transfer_time_s)):
        told = [found[what][name].sort_value for name in ("Values", "Shortest", "p25", "Median", "p75")]
        assert told == [spread.count, spread.minimum, spread.p25, spread.median, spread.p75]
        told = [found[what][name].sort_value for name in ("p95", "Longest", "Mean", "Deviation")]
        assert told == [spread.p95, spread.maximum, spread.mean, spread.stdev]


def test_two_reports_side_by_side(tmp_path):
    theirs = replace(compute_stats(make_random_history(30, 2)), name=HOSTILE_TEXT)
    text = written(make_random_history(30, 1, name="new"), tmp_path, pngs=False, against=theirs)
    page = Parsed(text)
    assert len(page.all("script")) == 1
    assert "Against " in page.text("h2")
    assert {"success rate", "useful share", "held in transfer"} <= set(page.texts["td"])
    assert {"better", "worse"} & set(page.texts["td"])
    assert text.index('class="cards"') < text.index('id="against"') < text.index("<figure")


def test_findings_stand_on_top_with_their_figures_marked(tmp_path):
    found = [Insight("44% of the wallclock went to <transfers>.", 1.0), Insight("13 jobs took 4 h 57 min.", 0.5)]
    text = written(make_random_history(3), tmp_path, found)
    assert '<p class="first"><b>44%</b> of the wallclock went to &lt;transfers&gt;.</p>' in text
    assert "<li><b>13\u00a0jobs</b> took <b>4\u00a0h\u00a057\u00a0min</b>.</li>" in text
    assert text.index("44%") < text.index('class="cards"') < text.index("<figure") < text.index("<table")


def test_files_are_linked_if_they_are_there(tmp_path):
    (tmp_path / "jobs.csv").write_text("job\n")
    page = Parsed(written(make_random_history(3), tmp_path))
    links = [a["href"] for a in page.all("a") if not a["href"].startswith("#")]
    assert "jobs.csv" in links
    assert "attempts.csv" not in links
    assert [link for link in links if not (tmp_path / link).is_file()] == []
    assert sum(link.endswith(".png") for link in links) == len(page.all("figure"))


def test_without_pngs_there_are_none(tmp_path):
    text = written(make_random_history(3), tmp_path / "made" / "here", pngs=False)
    assert [path.name for path in (tmp_path / "made" / "here").iterdir()] == ["index.html"]
    assert ".png" not in text


def test_what_cannot_be_told_and_what_could_not_be_read_is_said(tmp_path):
    history = replace(
        make_random_history(2),
        limitations=("Nobody looked.",),
        n_skipped=4,
        problems=(ReadProblem("a.log", 1200, "cut"),),
    )
    text = Parsed(written(history, tmp_path, pngs=False)).text("li")
    assert "Nobody looked." in text
    assert "a.log, line 1,200: cut" in text
    assert "and 3 more" in text


def test_pictures_tell_in_words_what_they_show_and_tables_can_be_reached(thousand):
    page = Parsed(thousand)
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert len(page.all("svg")) == 2 * len(page.all("figure"))
    assert all(head["aria-sort"] == "none" and head["scope"] == "col" for head in page.all("th"))
    regions = [div for div in page.all("div") if div.get("class") == "scroll"]
    assert all(div["tabindex"] == "0" and div["aria-label"] for div in regions)
    assert len(regions) == len(page.all("table"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_of_too_many_jobs_those_that_lost_most_are_in_the_table(monkeypatch):
    monkeypatch.setattr(tables, "MAX_ROWS", 5)
    history = make_random_history(30)
    figures = compute_stats(history)
    grids = {grid.element_id: grid for grid in tables.build_tables(history, figures)}
    assert len(grids["jobs"].rows) == len(grids["attempts"].rows) == 5
    assert "The 5 jobs that lost most, of 30." in grids["jobs"].to_html
    useless = {
        row.job: row.slot_s - sum(row.time_use_s.get(share, 0.0) for share in USEFUL) for row in figures.job_summaries
    }
    assert [row[0].text for row in grids["jobs"].rows] == sorted(useless, key=useless.get, reverse=True)[:5]


def test_jobs_are_told_apart_by_their_point_of_the_matrix(tmp_path):
    points = ({"lr": "0.1", "seed": "7"}, {"lr": "0.01", "seed": "7"})
    few = make_random_history(2)
    jobs = tuple(replace(job, point=point) for job, point in zip(few.jobs, points, strict=True))
    page = Parsed(written(replace(few, jobs=jobs), tmp_path, pngs=False))
    assert "lr 0.01" in page.texts["td"]
    assert "794569.001 lr 0.01" in page.texts["text"]
    assert "seed" not in page.text("td")
    assert "Parameters" in page.texts["button"]


def test_the_last_of_an_odd_row_of_small_pictures_stands_alone():
    halves = [False, True, True, True, False, True, True]
    assert [sections.is_alone(halves, number) for number in range(7)] == [
        False,
        False,
        False,
        True,
        False,
        False,
        False,
    ]


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_have_the_contrast_that_people_need(thousand, theme):
    style = Parsed(thousand).text("style")
    own = dict(re.findall(r"--(\w+): (#\w{6})", style)) if theme == "light" else DARK_THEME
    seen = {paint.name: getattr(paint, theme) for paint in ALL_COLORS} | own
    for words in ("ink", "faint", "accent", "good", "bad"):
        for ground in ("paper", "ground", "soft"):
            light, dark = sorted((luminance(seen[words]), luminance(seen[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, ground)
