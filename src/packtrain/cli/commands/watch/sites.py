"""packtrain sites"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting, services
from packtrain.cli.ui.output import json_option, print_next_commands, print_result
from packtrain.views.site_table import HALF_LIFE_S, SiteRow, build_site_rows

_MAX_ROWS_SHOWN = 30
_PLURALS = {"site": "sites", "node": "nodes", "cache": "caches"}


@click.command(name="sites")
@click.option("--nodes", "selected_kind", flag_value="node", help="Show nodes instead of sites.")
@click.option("--caches", "selected_kind", flag_value="cache", help="Show the hosts that data came from.")
@click.option(
    "-a", "--all", "show_all", is_flag=True, help=f"Show all, not only the best and worst {_MAX_ROWS_SHOWN // 2}."
)
@json_option
def command(selected_kind: str | None, show_all: bool, as_json: bool) -> None:
    """Show failure rates and speeds of sites in earlier runs, and which sites are avoided and why."""
    site_history = services.load_site_history(services.open_store())
    kind = selected_kind or "site"
    rows = build_site_rows(site_history, kind)
    data: dict[str, Any] = {"half_life_s": HALF_LIFE_S, _PLURALS[kind]: [_row_data(row, kind) for row in rows]}
    print_result(as_json, data, lambda out: _print_sites(out, rows, kind, show_all))


def _row_data(row: SiteRow, kind: str) -> dict[str, Any]:
    """Return a row for --json; a cache has transfer statistics only, since node failures do not concern it."""
    data = row.to_json()
    return {name: data[name] for name in _CACHE_KEYS} if kind == "cache" else data


def _print_sites(out: Console, rows: list[SiteRow], kind: str, show_all: bool) -> None:
    if not rows:
        out.print("nothing is known yet; sites are recorded when attempts end")
        return
    shown = (
        rows
        if show_all or len(rows) <= _MAX_ROWS_SHOWN
        else rows[: _MAX_ROWS_SHOWN // 2] + rows[-_MAX_ROWS_SHOWN // 2 :]
    )
    out.print(_sites_table(shown, kind, out.width))
    if len(shown) < len(rows):
        out.print(f"{len(rows) - len(shown)} rows in between are not shown; -a shows all", style="dim")
    for row in (row for row in rows if row.avoid_reason):
        out.print(f"{row.name} is avoided by new runs: {row.avoid_reason}", style="yellow")
    out.print(f"older observations count less (half-life {formatting.format_duration(HALF_LIFE_S)})", style="dim")
    if kind == "site":
        print_next_commands(
            ("packtrain sites --nodes", "show nodes"), ("packtrain sites --caches", "show where data came from")
        )


def _sites_table(rows: list[SiteRow], kind: str, width: int) -> Table:
    """Return the table without the last columns that do not fit into the terminal."""
    columns = [(title, style, [cell(row) for row in rows]) for title, style, cell in _COLUMNS[kind]]
    while len(columns) > 2 and sum(_column_width(title, cells) for title, _, cells in columns) > width:
        columns.pop()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title, style, _ in columns:
        is_number = title not in (kind, *_LEFT_ALIGNED)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(title, style=style, justify=justify, no_wrap=title != kind, overflow="fold")
    for cells in zip(*(cells for _, _, cells in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _column_width(title: str, cells: list[str]) -> int:
    return max(len(title), *map(len, cells)) + 2


def _format_duration(seconds: float | None) -> str:
    return "" if seconds is None else formatting.format_duration(seconds)


_LEFT_ALIGNED = ("outcomes", "speeds", "last")
TableColumn = tuple[str, str, Callable[[SiteRow], str]]
_FAILURE_RATE_COLUMN: TableColumn = ("failed", "", lambda row: formatting.format_percent(row.failure_rate))
_OUTCOMES_COLUMN: TableColumn = ("outcomes", "cyan", lambda row: row.outcome_sparkline)
_EXECUTIONS_COLUMN: TableColumn = ("executions", "", lambda row: str(row.executions))
_COMPUTE_COLUMN: TableColumn = ("compute", "", lambda row: _format_duration(row.compute_s))
_RELATIVE_DURATION_COLUMN: TableColumn = (
    "vs. usual",
    "",
    lambda row: "" if row.relative_duration is None else f"{row.relative_duration:.2f}×",
)
_TRANSFER_COLUMN: TableColumn = ("transfer", "", lambda row: _format_duration(row.transfer_s))
_SPEED_COLUMN: TableColumn = (
    "speed",
    "",
    lambda row: "" if row.bytes_per_s is None else formatting.format_rate(row.bytes_per_s),
)
_SPEED_SPARKLINE_COLUMN: TableColumn = ("speeds", "green", lambda row: row.speed_sparkline)
_LAST_SEEN_COLUMN: TableColumn = (
    "last",
    "dim",
    lambda row: formatting.format_age(time.time() - row.last_seen_at),
)
_SITE_COLUMNS = (
    _EXECUTIONS_COLUMN,
    _FAILURE_RATE_COLUMN,
    _OUTCOMES_COLUMN,
    _RELATIVE_DURATION_COLUMN,
    _COMPUTE_COLUMN,
    _TRANSFER_COLUMN,
    _SPEED_COLUMN,
    _LAST_SEEN_COLUMN,
    _SPEED_SPARKLINE_COLUMN,
)
_COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "site": (("site", "bold", lambda row: row.name), *_SITE_COLUMNS),
    "node": (("node", "bold", lambda row: row.name), *_SITE_COLUMNS),
    "cache": (
        ("cache", "bold", lambda row: row.name),
        _EXECUTIONS_COLUMN,
        _TRANSFER_COLUMN,
        _SPEED_COLUMN,
        _SPEED_SPARKLINE_COLUMN,
        _LAST_SEEN_COLUMN,
    ),
}
_CACHE_KEYS = ("name", "executions", "transfer_s", "bytes_per_s", "last_seen_at", "speed_sparkline")
