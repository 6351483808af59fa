"""Puts the page together and writes it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from packtrain import __version__
from packtrain.report.analysis.findings import Insight
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.charts.canvas.png import save_png
from packtrain.report.charts.canvas.svg import escape_xml
from packtrain.report.charts.catalog import ReportChart, build_charts
from packtrain.report.charts.palette import ALL_COLORS
from packtrain.report.history import JobHistory
from packtrain.report.page import sections
from packtrain.report.page.tables import build_tables
from packtrain.report.page.tables import comparison_table as against_table
from packtrain.report.readers.training_curves import TrainingCurves

PAGE_FILE, CHARTS_DIR = "index.html", "pictures"
# What lies beside the page, if the report has it, and what it is called there.
_DATA_FILES = {"report.json": "All figures (JSON)", "jobs.csv": "Jobs (CSV)", "attempts.csv": "Attempts (CSV)"}
DARK_THEME = {
    "ground": "#12151a",
    "line": "#333b45",
    "accent": "#6cb8f0",
    "good": "#4fd1a5",
    "soft": "#232930",
    "shade": "#000000a0",
}
_PLACEHOLDER_PATTERN = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    history: JobHistory,
    stats: ReportStats,
    insights: Sequence[Insight],
    output_dir: Path,
    *,
    curves: TrainingCurves | None = None,
    write_pngs: bool = True,
    baseline: ReportStats | None = None,
) -> Path:
    """The page's path. Pictures stand in it; `pngs` also puts them beside it, for slides. `against`: of another report,
    to compare with."""
    output_dir.mkdir(parents=True, exist_ok=True)
    shown = build_charts(history, stats, curves)
    if write_pngs:
        save_charts(shown, output_dir / CHARTS_DIR)
    beside = against_table(stats, baseline).to_html if baseline else ""
    page = _render_page(history, stats, insights, shown, output_dir, write_pngs, beside)
    path, temporary = output_dir / PAGE_FILE, output_dir / f".{PAGE_FILE}.new"
    temporary.write_text(page, encoding="utf-8", errors="replace")
    return temporary.replace(path)


def save_charts(charts: Sequence[ReportChart], charts_dir: Path) -> None:
    charts_dir.mkdir(exist_ok=True)
    for picture in charts:
        save_png(picture.wide, picture.title, charts_dir / f"{picture.name}.png")


def _render_page(
    history: JobHistory,
    stats: ReportStats,
    insights: Sequence[Insight],
    charts: Sequence[ReportChart],
    output_dir: Path,
    has_png_files: bool,
    comparison_html: str,
) -> str:
    script, style = _load_asset("page.js"), _color_css() + _load_asset("page.css")
    return _fill_template(
        _load_asset("page.html"),
        {
            "policy": f"default-src 'none'; img-src data:; script-src {_csp_hash(script)}; style-src {_csp_hash(style)}; "
            "base-uri 'none'; form-action 'none'",
            "title": escape_xml(history.name),
            "script": script,
            "style": style,
            "about": sections.render_subtitle(history, stats),
            "links": _render_links(output_dir),
            "findings": sections.render_insights(insights),
            "cards": sections.render_cards(stats),
            "against": comparison_html,
            "pictures": sections.render_charts(charts, has_png_files),
            "tables": "".join(grid.to_html for grid in build_tables(history, stats)),
            "notes": sections.render_notes(history),
            "version": escape_xml(__version__),
        },
    )


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    """In one pass: a value that looks like a hole stays as it is."""
    return _PLACEHOLDER_PATTERN.sub(lambda hole: values[hole.group(1)], template)


def _load_asset(name: str) -> str:
    return (files("packtrain.report.page") / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """How a page's policy names the one script that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _color_css() -> str:
    """Light, unless the reader prefers dark or has chosen it; paper is always light."""
    light = "".join(f"--{paint.name}:{paint.light};" for paint in ALL_COLORS)
    dark = "".join(f"--{paint.name}:{paint.dark};" for paint in ALL_COLORS)
    dark += "".join(f"--{name}:{value};" for name, value in DARK_THEME.items()) + "color-scheme:dark;"
    return (
        f":root{{{light}}}\n@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
    )


def _render_links(output_dir: Path) -> str:
    found = [
        f'<li><a href="{name}">{words}</a></li>' for name, words in _DATA_FILES.items() if (output_dir / name).is_file()
    ]
    return f'<ul class="files">{"".join(found)}</ul>' if found else ""
