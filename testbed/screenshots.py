"""Makes the screenshots of docs/pictures anew, of the published study: `python -m testbed.screenshots [FOLDER]`.

With a folder, whole pages lie there, on a desk (1280 px) and on a telephone (400 px), to be looked at: those that stand
in the docs show the top of a page only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from packtrain.report.analysis.findings import findings_of
from packtrain.report.analysis.statistics import Figures, figures_of
from packtrain.report.history import History
from packtrain.report.page import write_page
from packtrain.report.readers.files import read
from testbed.chromium import Chromium
from testbed.debian import PROJECT

STUDY = PROJECT / "tests/data/study"
PICTURES = PROJECT / "docs/pictures"
THEMES = ("light", "dark")
WIDTHS = (1280, 400)
_BOTTOM = "document.getElementById('picture-timeline').getBoundingClientRect().bottom"


def main() -> None:
    week = read([str(STUDY / "ospool-imagenet-100-jobs.csv")])
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium:
        if sys.argv[1:]:
            trials = figures_of(read([str(STUDY / "ospool-imagenet-trials.csv")]))
            shoot_whole(chromium, _page(week, Path(folder), trials), Path(sys.argv[1]))
        else:
            shoot_top(chromium, _page(week, Path(folder)), PICTURES)


def _page(history: History, folder: Path, against: Figures | None = None) -> str:
    figures = figures_of(history)
    page = write_page(history, figures, findings_of(history, figures), folder, pngs=False, against=against)
    return page.as_uri()


def shoot_top(chromium: Chromium, page: str, folder: Path) -> None:
    """From the top of the page down to its timeline, in both themes."""
    for theme in THEMES:
        shown = chromium.open(page, WIDTHS[0], dark=theme == "dark")
        shown.shape(WIDTHS[0], round(shown.run(_BOTTOM)) + 9, dark=theme == "dark")
        shown.screenshot(folder / f"report-{theme}.png", whole=False)
        print(folder / f"report-{theme}.png")


def shoot_whole(chromium: Chromium, page: str, folder: Path) -> None:
    """From top to bottom, at each width, in both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, theme in ((width, theme) for width in WIDTHS for theme in THEMES):
        path = folder / f"report-{width}-{theme}.png"
        chromium.open(page, width, dark=theme == "dark").screenshot(path)
        print(path)


if __name__ == "__main__":
    main()
