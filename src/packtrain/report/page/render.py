"""Renders the page from its template and writes it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from packtrain import __version__
from packtrain.fileutil import atomic_write
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.charts.canvas.png import save_png
from packtrain.report.charts.canvas.svg import escape_xml
from packtrain.report.charts.catalog import ReportChart, build_charts
from packtrain.report.charts.palette import ALL_COLORS
from packtrain.report.history import JobHistory
from packtrain.report.page import sections
from packtrain.report.page.tables import build_tables, comparison_table
from packtrain.report.readers.training_curves import TrainingCurves

PAGE_FILE, CHARTS_DIR = "index.html", "charts"
# Files in the folder of the page that it links to, with the texts of the links.
_DATA_FILES = {"report.json": "All statistics (JSON)", "jobs.csv": "Jobs (CSV)", "executions.csv": "Executions (CSV)"}
DARK_THEME = {
    "background": "#12151a",
    "border": "#333b45",
    "accent": "#6cb8f0",
    "good": "#4fd1a5",
    "hover": "#232930",
    "shadow": "#000000a0",
}
_PLACEHOLDER_PATTERN = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    history: JobHistory,
    stats: ReportStats,
    findings: Sequence[Finding],
    output_dir: Path,
    *,
    curves: TrainingCurves | None = None,
    write_pngs: bool = True,
    baseline: ReportStats | None = None,
) -> Path:
    """Write the page and return its path.

    Args:
        history: The history.
        stats: Its statistics.
        findings: Its findings, the most important first.
        output_dir: The folder to write to; it is created if it does not exist.
        curves: The training curves to plot.
        write_pngs: Whether to also save each chart as a PNG file.
        baseline: The statistics of another history to compare with.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    charts = build_charts(history, stats, curves)
    if write_pngs:
        save_charts(charts, output_dir / CHARTS_DIR)
    comparison_html = comparison_table(stats, baseline).to_html if baseline else ""
    page = _render_page(history, stats, findings, charts, output_dir, write_pngs, comparison_html)
    path = output_dir / PAGE_FILE
    atomic_write(path, page.encode(errors="replace"))
    return path


def save_charts(charts: Sequence[ReportChart], charts_dir: Path) -> None:
    charts_dir.mkdir(exist_ok=True)
    for chart in charts:
        save_png(chart.wide, chart.title, charts_dir / f"{chart.name}.png")


def _render_page(
    history: JobHistory,
    stats: ReportStats,
    findings: Sequence[Finding],
    charts: Sequence[ReportChart],
    output_dir: Path,
    has_png_files: bool,
    comparison_html: str,
) -> str:
    script, style = _load_asset("page.js"), _color_css() + _load_asset("page.css")
    return _fill_template(
        _load_asset("page.html"),
        {
            "policy": f"default-src 'none'; img-src data:; script-src {_csp_hash(script)}; "
            f"style-src {_csp_hash(style)}; base-uri 'none'; form-action 'none'",
            "title": escape_xml(history.name),
            "script": script,
            "style": style,
            "subtitle": sections.render_subtitle(history, stats),
            "links": _render_links(output_dir),
            "findings": sections.render_findings(findings),
            "cards": sections.render_cards(stats),
            "comparison": comparison_html,
            "charts": sections.render_charts(charts, has_png_files),
            "tables": "".join(table.to_html for table in build_tables(history, stats)),
            "notes": sections.render_notes(history),
            "version": escape_xml(__version__),
        },
    )


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    """Replace all placeholders in one pass, so that placeholders inside values are not replaced."""
    return _PLACEHOLDER_PATTERN.sub(lambda match: values[match.group(1)], template)


def _load_asset(name: str) -> str:
    return (files("packtrain.report.page") / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the source expression that allows exactly this script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _color_css() -> str:
    """Return the color variables. Dark if the reader prefers or chose it; print is always light."""
    light = "".join(f"--{color.name}:{color.light};" for color in ALL_COLORS)
    dark = "".join(f"--{color.name}:{color.dark};" for color in ALL_COLORS)
    dark += "".join(f"--{name}:{value};" for name, value in DARK_THEME.items()) + "color-scheme:dark;"
    return (
        f":root{{{light}}}\n@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
    )


def _render_links(output_dir: Path) -> str:
    links = [
        f'<li><a href="{name}">{text}</a></li>' for name, text in _DATA_FILES.items() if (output_dir / name).is_file()
    ]
    return f'<ul class="files">{"".join(links)}</ul>' if links else ""
