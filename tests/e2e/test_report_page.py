"""The page of a report in a real browser: tables are sorted and searched, a theme is chosen, it asks for nothing."""

from __future__ import annotations

import json

import pytest

from packtrain.report.analysis.findings import Insight
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.history import ExecutionRecord, FailureCategory, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.page import write_page
from testbed.chromium import Chromium
from tests.support.histories import make_random_history
from tests.support.history_strategies import HOSTILE_TEXT

pytestmark = pytest.mark.slow
COLUMN = """(table, column) => [...document.querySelectorAll(`#${table} tbody tr`)].map(row => {
  const cell = row.cells[column]; return !cell.dataset.v ? cell.textContent : Number(cell.dataset.v) })"""
TOUCHING = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const beside = (a, b) => a.left >= b.right - 1 || b.left >= a.right - 1;
  const meet = (a, b) => a.width && !beside(a, b) && a.top < b.bottom - 4 && b.top < a.bottom - 4;
  const met = ([one, a], at) => boxes.slice(at + 1).filter(([, b]) => meet(a, b)).map(([other]) => [one, other]);
  return boxes.flatMap(met) })"""
HEAD = "document.querySelectorAll('#jobs th')[{}]"


@pytest.fixture(scope="module")
def chromium():
    with Chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    history = make_random_history(60)
    return write_page(history, compute_stats(history), [Insight("44% was lost.", 1)], tmp_path_factory.mktemp("report"))


def column(page, table, number):
    return page.run(f"({COLUMN})({json.dumps(table)}, {number})")


def sorting(page, number):
    return page.run(f"{HEAD.format(number)}.getAttribute('aria-sort')")


def quiet(page, address):
    """Nothing was said on the console, and nothing was asked for but the page."""
    assert page.said == []
    assert {asked for asked in page.asked if not asked.startswith("data:")} == {address}


def test_a_table_is_sorted_by_mouse_and_by_keyboard(chromium, report):
    page = chromium.open(report.as_uri())
    seconds = column(page, "jobs", 5)
    page.click("#jobs th:nth-child(6) button")
    assert column(page, "jobs", 5) == sorted(seconds, reverse=True) != seconds
    assert sorting(page, 5) == "descending"
    page.press("Enter")
    assert column(page, "jobs", 5) == sorted(seconds)
    assert sorting(page, 5) == "ascending"
    page.run("document.querySelector('#jobs th button').focus()")
    page.press(" ")
    assert sorting(page, 0) == "ascending"
    assert sorting(page, 5) == "none"
    assert column(page, "jobs", 0) == sorted(column(page, "jobs", 0))
    quiet(page, report.as_uri())


def test_what_is_unknown_comes_last_whatever_the_direction(chromium, report):
    page = chromium.open(report.as_uri())
    for _ in range(2):
        page.click("#jobs th:nth-child(5) button")
        values = column(page, "jobs", 4)
        unknown = values.count("–")
        assert 0 < unknown < len(values)
        assert values[-unknown:] == ["–"] * unknown


def test_a_table_is_searched(chromium, report):
    page = chromium.open(report.as_uri())
    page.run("document.querySelector('input[data-of=jobs]').focus()")
    page.call("Input.insertText", text="time LIMIT")
    shown = page.run(
        "[...document.querySelectorAll('#jobs tbody tr')].filter(row => !row.hidden).map(row => row.textContent)"
    )
    assert shown
    assert all("time limit" in row for row in shown)
    assert page.run("document.getElementById('jobs-told').textContent") == f"{len(shown)} found"


def test_the_theme_is_the_readers_until_one_is_chosen_and_then_remembered(chromium, report):
    ground = "getComputedStyle(document.body).backgroundColor"
    page = chromium.open(report.as_uri(), dark=True)
    dark = page.run(ground)
    assert page.run("document.getElementById('theme').textContent") == "Light theme"
    page.click("#theme")
    light = page.run(ground)
    assert light != dark
    page.reload()
    assert page.run(ground) == light
    page.click("#theme")
    assert page.run(ground) == dark
    page.shape(1280, 900, dark=True, media="print")
    assert page.run("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    page.run("localStorage.clear()")
    quiet(page, report.as_uri())


@pytest.mark.parametrize("width", [400, 700, 1280])
def test_the_page_itself_never_scrolls_sideways(chromium, report, width):
    page = chromium.open(report.as_uri(), width=width)
    assert page.run("document.documentElement.scrollWidth") <= width
    shown = page.run(
        "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).map(s => s.classList[0])"
    )
    assert set(shown) == {"wide" if width > 720 else "narrow"}


def test_words_of_pictures_do_not_touch_in_the_browsers_own_font(chromium, report):
    for width in (400, 1280):
        assert chromium.open(report.as_uri(), width=width).run(TOUCHING) == []


def test_a_browser_that_does_not_answer_is_not_waited_for_for_ever(report):
    """Of the testbed itself: a test that hangs tells nobody why."""
    with Chromium() as own:
        page = own.open(report.as_uri())
        own.timeout_s = 0.2
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s: Runtime\.evaluate"):
            page.evaluate("window.never = new Promise(done => { window.done = done })")
        page.is_loaded = False
        with pytest.raises(TimeoutError, match="the page"):
            own.wait_for_load(page)


def test_a_comparison_is_a_table_as_the_others_are(chromium, tmp_path):
    history, theirs = make_random_history(30, 1, name="new"), compute_stats(make_random_history(30, 2, name="old"))
    path = write_page(history, compute_stats(history), [], tmp_path, write_pngs=False, baseline=theirs)
    page = chromium.open(path.as_uri(), width=400)
    assert page.run("document.documentElement.scrollWidth") <= 400
    page.click("#against th:nth-child(4) button")
    ratios = [value for value in column(page, "against", 3) if value != "–"]
    assert ratios == sorted(ratios, reverse=True)
    quiet(page, path.as_uri())


def test_a_hostile_log_runs_nothing(chromium, tmp_path):
    span = (PhaseSpan(Phase.TRANSFER_IN, 0, 60), PhaseSpan(Phase.EXECUTE, 60, 100))
    bad = ExecutionRecord(1, span, Outcome.FAILED, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, FailureCategory.PROGRAM)
    history = JobHistory(
        HOSTILE_TEXT,
        "log",
        (JobRecord(HOSTILE_TEXT, (bad,), Outcome.FAILED, 0.0, 100.0, reason=HOSTILE_TEXT),),
        limitations=(HOSTILE_TEXT,),
    )
    path = write_page(history, compute_stats(history), [Insight(HOSTILE_TEXT, 1)], tmp_path)
    page = chromium.open(path.as_uri())
    assert page.run("document.scripts.length") == 1
    assert page.run("document.images.length") == 0
    assert HOSTILE_TEXT.split("\x00")[0] in page.run("document.querySelector('h1').textContent")
    quiet(page, path.as_uri())
