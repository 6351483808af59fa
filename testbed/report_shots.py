"""Makes the screenshots of docs/pictures anew, of the published study: `python -m testbed.report_shots`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from packtrain.report.figures import figures_of
from packtrain.report.findings import findings_of
from packtrain.report.page import write_page
from packtrain.report.read import read
from testbed.chromium import Chromium
from testbed.debian import PROJECT

STUDY = PROJECT / "tests/data/study/ospool-imagenet-100-jobs.csv"
PICTURES = PROJECT / "docs/pictures"
_WIDTH = 1180
_BOTTOM = "document.getElementById('picture-timeline').getBoundingClientRect().bottom"


def main() -> None:
    """From the top of the page down to its timeline, in both themes."""
    history = read([str(STUDY)])
    figures = figures_of(history)
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium:
        page = write_page(history, figures, findings_of(history, figures), Path(folder), pngs=False)
        for theme in ("light", "dark"):
            shown = chromium.open(page.as_uri(), _WIDTH, dark=theme == "dark")
            shown.shape(_WIDTH, round(shown.run(_BOTTOM)) + 20, dark=theme == "dark")
            shown.screenshot(PICTURES / f"report-{theme}.png", whole=False)
            print(PICTURES / f"report-{theme}.png")


if __name__ == "__main__":
    main()
