"""Puts the page together and writes it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from packtrain import __version__
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import Figures
from packtrain.report.charts.canvas.png import save_png
from packtrain.report.charts.canvas.svg import clean
from packtrain.report.charts.catalog import Picture, pictures_of
from packtrain.report.charts.palette import EVERY
from packtrain.report.history import History
from packtrain.report.page import sections
from packtrain.report.page.tables import against as against_table
from packtrain.report.page.tables import tables_of
from packtrain.report.readers.training_curves import Curves

PAGE, PICTURES = "index.html", "pictures"
# What lies beside the page, if the report has it, and what it is called there.
_FILES = {"report.json": "All figures (JSON)", "jobs.csv": "Jobs (CSV)", "attempts.csv": "Attempts (CSV)"}
DARK = {
    "ground": "#12151a",
    "line": "#333b45",
    "accent": "#6cb8f0",
    "good": "#4fd1a5",
    "soft": "#232930",
    "shade": "#000000a0",
}
_HOLE = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    history: History,
    figures: Figures,
    findings: Sequence[Finding],
    folder: Path,
    *,
    curves: Curves | None = None,
    pngs: bool = True,
    against: Figures | None = None,
) -> Path:
    """The page's path. Pictures stand in it; `pngs` also puts them beside it, for slides. `against`: of another report,
    to compare with."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = pictures_of(history, figures, curves)
    if pngs:
        save_pictures(shown, folder / PICTURES)
    beside = against_table(figures, against).html if against else ""
    page = _page(history, figures, findings, shown, folder, pngs, beside)
    path, temporary = folder / PAGE, folder / f".{PAGE}.new"
    temporary.write_text(page, encoding="utf-8", errors="replace")
    return temporary.replace(path)


def save_pictures(shown: Sequence[Picture], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for picture in shown:
        save_png(picture.wide, picture.title, folder / f"{picture.name}.png")


def _page(
    history: History,
    figures: Figures,
    findings: Sequence[Finding],
    shown: Sequence[Picture],
    folder: Path,
    pngs: bool,
    against: str,
) -> str:
    script, style = _part("page.js"), _colours() + _part("page.css")
    return _filled(
        _part("page.html"),
        {
            "policy": f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}; "
            "base-uri 'none'; form-action 'none'",
            "title": clean(history.name),
            "script": script,
            "style": style,
            "about": sections.about(history, figures),
            "links": _links(folder),
            "findings": sections.findings(findings),
            "cards": sections.cards(figures),
            "against": against,
            "pictures": sections.pictures(shown, pngs),
            "tables": "".join(grid.html for grid in tables_of(history, figures)),
            "notes": sections.notes(history),
            "version": clean(__version__),
        },
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    """In one pass: a value that looks like a hole stays as it is."""
    return _HOLE.sub(lambda hole: values[hole.group(1)], template)


def _part(name: str) -> str:
    return (files("packtrain.report.page") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a page's policy names the one script that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _colours() -> str:
    """Light, unless the reader prefers dark or has chosen it; paper is always light."""
    light = "".join(f"--{paint.name}:{paint.light};" for paint in EVERY)
    dark = "".join(f"--{paint.name}:{paint.dark};" for paint in EVERY)
    dark += "".join(f"--{name}:{value};" for name, value in DARK.items()) + "color-scheme:dark;"
    return (
        f":root{{{light}}}\n@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
    )


def _links(folder: Path) -> str:
    found = [f'<li><a href="{name}">{words}</a></li>' for name, words in _FILES.items() if (folder / name).is_file()]
    return f'<ul class="files">{"".join(found)}</ul>' if found else ""
