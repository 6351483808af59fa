"""Update the screenshots in docs/pictures, of the published study: `python -m testbed.screenshots [FOLDER]`.

With a folder, write full pages to it instead, at desktop (1280 px) and phone (400 px) width, for inspection. The docs
show only the top of a page.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from packtrain.report.analysis.findings import collect_findings
from packtrain.report.analysis.statistics import ReportStats, compute_stats
from packtrain.report.history import JobHistory
from packtrain.report.page import write_page
from packtrain.report.readers.files import read_history
from testbed.chromium import Chromium
from testbed.debian import PROJECT_ROOT

STUDY = PROJECT_ROOT / "tests/data/study"
PICTURES = PROJECT_ROOT / "docs/pictures"
COLOR_SCHEMES = ("light", "dark")
WIDTHS = (1280, 400)
_TIMELINE_BOTTOM_JS = "document.getElementById('picture-timeline').getBoundingClientRect().bottom"


def main() -> None:
    week = read_history([str(STUDY / "ospool-imagenet-100-jobs.csv")])
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium:
        if sys.argv[1:]:
            trials = compute_stats(read_history([str(STUDY / "ospool-imagenet-trials.csv")]))
            screenshot_full_pages(chromium, _write_page_url(week, Path(folder), trials), Path(sys.argv[1]))
        else:
            screenshot_top(chromium, _write_page_url(week, Path(folder)), PICTURES)


def _write_page_url(history: JobHistory, folder: Path, baseline: ReportStats | None = None) -> str:
    stats = compute_stats(history)
    page = write_page(history, stats, collect_findings(history, stats), folder, write_pngs=False, baseline=baseline)
    return page.as_uri()


def screenshot_top(chromium: Chromium, page_url: str, folder: Path) -> None:
    """Capture the top of the page down to its timeline, in both themes."""
    for theme in COLOR_SCHEMES:
        page = chromium.open(page_url, WIDTHS[0], dark=theme == "dark")
        page.set_viewport(WIDTHS[0], round(page.evaluate(_TIMELINE_BOTTOM_JS)) + 9, dark=theme == "dark")
        page.screenshot(folder / f"report-{theme}.png", full_page=False)
        print(folder / f"report-{theme}.png")


def screenshot_full_pages(chromium: Chromium, page_url: str, folder: Path) -> None:
    """Capture the full page at each width, in both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, theme in ((width, theme) for width in WIDTHS for theme in COLOR_SCHEMES):
        path = folder / f"report-{width}-{theme}.png"
        chromium.open(page_url, width, dark=theme == "dark").screenshot(path)
        print(path)


if __name__ == "__main__":
    main()
