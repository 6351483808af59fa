"""The report page: self-contained, complete, and safe against text from logs."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings

from packtrain.report.analysis.findings import Finding, collect_findings
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


class ParsedPage(HTMLParser):
    """The elements of a page, and the texts by tag."""

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


def page_text(history, folder, findings=None, **options):
    stats = compute_stats(history)
    found = collect_findings(history, stats) if findings is None else findings
    return write_page(history, stats, found, folder, **options).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def large_page(tmp_path_factory):
    return page_text(make_random_history(1000), tmp_path_factory.mktemp("page"), write_pngs=False)


def test_page_is_self_contained(large_page):
    assert set(re.findall(r"https?://[^\s\"'<]*", large_page)) == {"http://www.w3.org/2000/svg"}
    page = ParsedPage(large_page)
    assert not [tag for tag, _ in page.tags if tag in {"img", "iframe", "object", "embed", "base", "form"}]
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "@import" not in large_page
    assert "url(" not in large_page


def test_content_security_policy(large_page):
    page = ParsedPage(large_page)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(page.text(tag).encode()).digest()).decode()
        assert len(page.all(tag)) == 1
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_page_size(large_page):
    assert len(large_page.encode()) < 3_000_000
    assert len(re.findall(r"<tr>", large_page)) > 2000
    assert "{{" not in large_page


def hostile_history():
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 60), PhaseSpan(Phase.EXECUTE, 60, 100))
    failed = ExecutionRecord(
        1, spans, Outcome.FAILED, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, FailureCategory.PROGRAM
    )
    jobs = tuple(
        JobRecord(f"{HOSTILE_TEXT}{n}", (failed,), Outcome.FAILED, 0.0, 100.0, reason=HOSTILE_TEXT) for n in range(20)
    )
    return JobHistory(
        HOSTILE_TEXT, HOSTILE_TEXT, jobs, (ReadProblem(HOSTILE_TEXT, 3, HOSTILE_TEXT),), 2, (HOSTILE_TEXT,)
    )


def test_text_is_escaped(tmp_path):
    page = ParsedPage(page_text(hostile_history(), tmp_path, [Finding(HOSTILE_TEXT, 1.0), Finding(HOSTILE_TEXT, 0.5)]))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert "alert('x')" in page.text("td"), "text is shown unchanged"
    assert "{{script}}" in page.text("h1")
    assert "\x00" not in (tmp_path / "index.html").read_text()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job_histories())
def test_any_history(tmp_path, history):
    page = ParsedPage(page_text(history, tmp_path, write_pngs=False))
    assert len(page.all("script")) == 1
    assert len(page.all("h1")) == 1


def test_empty_history(tmp_path):
    page = ParsedPage(page_text(JobHistory("nothing", "log", ()), tmp_path, []))
    assert "There is nothing to report yet." in page.text("p")
    assert not page.all("table")
    assert not page.all("figure")


def test_loss_cards(tmp_path):
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 900), PhaseSpan(Phase.EXECUTE, 900, 9900))
    good = ExecutionRecord(1, spans, Outcome.SUCCEEDED, "A")
    bad = ExecutionRecord(1, spans[:1], Outcome.HELD, "A", category=FailureCategory.TRANSFER)
    held = {"outcome": Outcome.HELD, "category": FailureCategory.TRANSFER}
    jobs = (
        JobRecord("1", (good,), Outcome.SUCCEEDED),
        JobRecord("2", (bad,), **held, held_in_phase=Phase.TRANSFER_IN),
        JobRecord("3", (), **held),
    )
    texts = ParsedPage(page_text(JobHistory("history", "log", jobs), tmp_path, write_pngs=False)).texts["p"]
    cards = [texts[i : i + 3] for i in range(len(texts)) if texts[i] in LOSS_CARDS]
    assert cards == [
        ["Transfer overhead", "10%", "useful transfer / useful compute"],
        ["Time of failed jobs", "15\u00a0min", "8.3% of the total, 2\u00a0jobs"],
        ["Jobs held, not released", "2", "1 in transfer, 1 elsewhere"],
    ]


LOSS_CARDS = ("Transfer overhead", "Time of failed jobs", "Jobs held, not released")


def test_distributions_table():
    history = make_random_history(200)
    stats = compute_stats(history)
    table = next(table for table in tables.build_tables(history, stats) if table.element_id == "distributions")
    columns = [column.name for column in table.columns]
    rows = {row[1].text: dict(zip(columns, row, strict=True)) for row in table.rows[:2]}
    site = stats.sites[0]
    for label, values in (("compute", site.compute_time_s), ("transfer", site.transfer_time_s)):
        shown = {name: rows[label][name].sort_value for name in columns[2:]}
        assert shown == {
            "Values": values.count,
            "Mean": values.mean,
            "Std. dev.": values.stdev,
            "Minimum": values.minimum,
            "p25": values.p25,
            "Median": values.median,
            "p75": values.p75,
            "p95": values.p95,
            "Maximum": values.maximum,
        }


def test_comparison(tmp_path):
    baseline = replace(compute_stats(make_random_history(30, 2)), name=HOSTILE_TEXT)
    text = page_text(make_random_history(30, 1, name="new"), tmp_path, write_pngs=False, baseline=baseline)
    page = ParsedPage(text)
    assert len(page.all("script")) == 1
    assert "Compared with " in page.text("h2")
    assert {"success rate", "useful share", "held in transfer"} <= set(page.texts["td"])
    assert {"better", "worse"} & set(page.texts["td"])
    assert text.index('class="cards"') < text.index('id="comparison"') < text.index("<figure")


def test_findings_are_first(tmp_path):
    findings = [Finding("44% of the slot time went to <transfers>.", 1.0), Finding("13 jobs took 4 h 57 min.", 0.5)]
    text = page_text(make_random_history(3), tmp_path, findings)
    assert '<p class="lead"><b>44%</b> of the slot time went to &lt;transfers&gt;.</p>' in text
    assert "<li><b>13\u00a0jobs</b> took <b>4\u00a0h\u00a057\u00a0min</b>.</li>" in text
    assert text.index("44%") < text.index('class="cards"') < text.index("<figure") < text.index("<table")


def test_links_to_existing_files(tmp_path):
    (tmp_path / "jobs.csv").write_text("job\n")
    page = ParsedPage(page_text(make_random_history(3), tmp_path))
    links = [a["href"] for a in page.all("a") if not a["href"].startswith("#")]
    assert "jobs.csv" in links
    assert "executions.csv" not in links
    assert [link for link in links if not (tmp_path / link).is_file()] == []
    assert sum(link.endswith(".png") for link in links) == len(page.all("figure"))


def test_without_png_files(tmp_path):
    text = page_text(make_random_history(3), tmp_path / "new" / "folder", write_pngs=False)
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["index.html"]
    assert ".png" not in text


def test_limitations_and_problems(tmp_path):
    history = replace(
        make_random_history(2),
        limitations=("Not checked.",),
        n_skipped=4,
        problems=(ReadProblem("a.log", 1200, "cut"),),
    )
    text = ParsedPage(page_text(history, tmp_path, write_pngs=False)).text("li")
    assert "Not checked." in text
    assert "a.log, line 1,200: cut" in text
    assert "and 3 more" in text


def test_accessibility(large_page):
    page = ParsedPage(large_page)
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert len(page.all("svg")) == 2 * len(page.all("figure"))
    assert all(head["aria-sort"] == "none" and head["scope"] == "col" for head in page.all("th"))
    regions = [div for div in page.all("div") if div.get("class") == "scroll"]
    assert all(div["tabindex"] == "0" and div["aria-label"] for div in regions)
    assert len(regions) == len(page.all("table"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_truncated_tables():
    history = make_random_history(30)
    stats = compute_stats(history)
    tables_by_id = {table.element_id: table for table in tables.build_tables(history, stats, max_rows=5)}
    assert len(tables_by_id["jobs"].rows) == len(tables_by_id["executions"].rows) == 5
    assert "The 5 jobs with the most wasted time, out of 30." in tables_by_id["jobs"].to_html
    wasted_s = {
        row.job: row.slot_s - sum(row.time_use_s.get(use, 0.0) for use in USEFUL) for row in stats.job_summaries
    }
    assert [row[0].text for row in tables_by_id["jobs"].rows] == sorted(wasted_s, key=wasted_s.get, reverse=True)[:5]


def test_matrix_parameters(tmp_path):
    points = ({"lr": "0.1", "seed": "7"}, {"lr": "0.01", "seed": "7"})
    history = make_random_history(2)
    jobs = tuple(replace(job, point=point) for job, point in zip(history.jobs, points, strict=True))
    page = ParsedPage(page_text(replace(history, jobs=jobs), tmp_path, write_pngs=False))
    assert "lr 0.01" in page.texts["td"]
    assert "794569.001 lr 0.01" in page.texts["text"]
    assert "seed" not in page.text("td")
    assert "Parameters" in page.texts["button"]


def test_last_half_width_chart_is_alone():
    half_width = [False, True, True, True, False, True, True]
    assert [sections.is_alone(half_width, number) for number in range(7)] == [
        False,
        False,
        False,
        True,
        False,
        False,
        False,
    ]


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_contrast(large_page, theme):
    style = ParsedPage(large_page).text("style")
    own = dict(re.findall(r"--(\w+): (#\w{6})", style)) if theme == "light" else DARK_THEME
    colors = {color.name: getattr(color, theme) for color in ALL_COLORS} | own
    for text in ("text", "muted", "accent", "good", "error"):
        for background in ("surface", "background", "hover"):
            light, dark = sorted((luminance(colors[text]), luminance(colors[background])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, background)
