"""The report page in a real browser: sorting, search, themes, and no network requests."""

from __future__ import annotations

import json

import pytest

from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.history import ExecutionRecord, FailureCategory, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.page import write_page
from testbed.chromium import Chromium
from tests.support.histories import make_random_history
from tests.support.history_strategies import HOSTILE_TEXT

pytestmark = pytest.mark.slow
COLUMN = """(table, column) => [...document.querySelectorAll(`#${table} tbody tr`)].map(row => {
  const cell = row.cells[column]; return !cell.dataset.v ? cell.textContent : Number(cell.dataset.v) })"""
OVERLAPPING_TEXTS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const apart = (a, b) => a.left >= b.right - 1 || b.left >= a.right - 1;
  const overlap = (a, b) => a.width && !apart(a, b) && a.top < b.bottom - 4 && b.top < a.bottom - 4;
  const pairs = ([text, a], i) => boxes.slice(i + 1).filter(([, b]) => overlap(a, b)).map(([other]) => [text, other]);
  return boxes.flatMap(pairs) })"""
HEADER = "document.querySelectorAll('#jobs th')[{}]"


@pytest.fixture(scope="module")
def chromium():
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    history = make_random_history(60)
    return write_page(
        history, compute_stats(history), [Finding("44% was wasted.", 1)], tmp_path_factory.mktemp("report")
    )


def column_values(page, table, number):
    return page.evaluate(f"({COLUMN})({json.dumps(table)}, {number})")


def sort_direction(page, number):
    return page.evaluate(f"{HEADER.format(number)}.getAttribute('aria-sort')")


def assert_quiet(page, address):
    """Assert that the console is empty and only the page was requested."""
    assert page.console_messages == []
    assert {url for url in page.requested_urls if not url.startswith("data:")} == {address}


def test_sorting_by_mouse_and_keyboard(chromium, report):
    page = chromium.open(report.as_uri())
    seconds = column_values(page, "jobs", 5)
    page.click("#jobs th:nth-child(6) button")
    assert column_values(page, "jobs", 5) == sorted(seconds, reverse=True) != seconds
    assert sort_direction(page, 5) == "descending"
    page.press("Enter")
    assert column_values(page, "jobs", 5) == sorted(seconds)
    assert sort_direction(page, 5) == "ascending"
    page.evaluate("document.querySelector('#jobs th button').focus()")
    page.press(" ")
    assert sort_direction(page, 0) == "ascending"
    assert sort_direction(page, 5) == "none"
    assert column_values(page, "jobs", 0) == sorted(column_values(page, "jobs", 0))
    assert_quiet(page, report.as_uri())


def test_unknown_values_are_last(chromium, report):
    page = chromium.open(report.as_uri())
    for _ in range(2):
        page.click("#jobs th:nth-child(5) button")
        values = column_values(page, "jobs", 4)
        unknown = values.count("–")
        assert 0 < unknown < len(values)
        assert values[-unknown:] == ["–"] * unknown


def test_search(chromium, report):
    page = chromium.open(report.as_uri())
    page.evaluate("document.querySelector('input[data-table=jobs]').focus()")
    page.call("Input.insertText", text="time LIMIT")
    visible = page.evaluate(
        "[...document.querySelectorAll('#jobs tbody tr')].filter(row => !row.hidden).map(row => row.textContent)"
    )
    assert visible
    assert all("time limit" in row for row in visible)
    assert page.evaluate("document.getElementById('jobs-status').textContent") == f"{len(visible)} found"


def test_theme(chromium, report):
    background = "getComputedStyle(document.body).backgroundColor"
    page = chromium.open(report.as_uri(), dark=True)
    dark = page.evaluate(background)
    assert page.evaluate("document.getElementById('theme').textContent") == "Light theme"
    page.click("#theme")
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    assert page.evaluate(background) == light
    page.click("#theme")
    assert page.evaluate(background) == dark
    page.set_viewport(1280, 900, dark=True, media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("localStorage.clear()")
    assert_quiet(page, report.as_uri())


@pytest.mark.parametrize("width", [400, 700, 1280])
def test_no_horizontal_scrolling(chromium, report, width):
    page = chromium.open(report.as_uri(), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    visible = page.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).map(s => s.classList[0])"
    )
    assert set(visible) == {"wide" if width > 720 else "narrow"}


def test_chart_texts_do_not_overlap(chromium, report):
    for width in (400, 1280):
        assert chromium.open(report.as_uri(), width=width).evaluate(OVERLAPPING_TEXTS) == []


def test_browser_timeout(report):
    """A browser that does not respond fails the test instead of blocking it."""
    with Chromium() as browser:
        page = browser.open(report.as_uri())
        browser.timeout_s = 0.2
        with pytest.raises(TimeoutError, match=r"did not respond within 0\.2 s: Runtime\.evaluate"):
            page.evaluate("window.never = new Promise(done => { window.done = done })")
        page.is_loaded = False
        with pytest.raises(TimeoutError, match="the page"):
            browser.wait_for_load(page)


def test_comparison_table(chromium, tmp_path):
    history, baseline = make_random_history(30, 1, name="new"), compute_stats(make_random_history(30, 2, name="old"))
    path = write_page(history, compute_stats(history), [], tmp_path, write_pngs=False, baseline=baseline)
    page = chromium.open(path.as_uri(), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.click("#comparison th:nth-child(4) button")
    ratios = [value for value in column_values(page, "comparison", 3) if value != "–"]
    assert ratios == sorted(ratios, reverse=True)
    assert_quiet(page, path.as_uri())


def test_hostile_log(chromium, tmp_path):
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 60), PhaseSpan(Phase.EXECUTE, 60, 100))
    failed = ExecutionRecord(
        1, spans, Outcome.FAILED, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, FailureCategory.PROGRAM
    )
    history = JobHistory(
        HOSTILE_TEXT,
        "log",
        (JobRecord(HOSTILE_TEXT, (failed,), Outcome.FAILED, 0.0, 100.0, reason=HOSTILE_TEXT),),
        limitations=(HOSTILE_TEXT,),
    )
    path = write_page(history, compute_stats(history), [Finding(HOSTILE_TEXT, 1)], tmp_path)
    page = chromium.open(path.as_uri())
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.images.length") == 0
    assert HOSTILE_TEXT.split("\x00")[0] in page.evaluate("document.querySelector('h1').textContent")
    assert_quiet(page, path.as_uri())
