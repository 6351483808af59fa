"""packtrain sites"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting, services
from packtrain.cli.ui.output import json_option, say_next, show
from packtrain.state.site_history import HALF_LIFE_S, Knowledge
from packtrain.views.site_table import PlaceRow, rows_of

_MOST = 30
_KINDS = {"site": "sites", "machine": "machines", "cache": "caches"}


@click.command(name="sites")
@click.option("--machines", "by", flag_value="machine", help="Machines instead of sites.")
@click.option("--caches", "by", flag_value="cache", help="The hosts that data came from.")
@click.option("-a", "--all", "every", is_flag=True, help=f"All, not only the best and worst of more than {_MOST}.")
@json_option
def command(by: str | None, every: bool, as_json: bool) -> None:
    """Show what earlier runs learned of sites: failures, speed, and which are avoided and why."""
    known = services.knowledge_of(services.open_store())
    kind = by or "site"
    rows = rows_of(*_places(known, kind))
    data: dict[str, Any] = {"half_life_s": HALF_LIFE_S, _KINDS[kind]: [_data(row, kind) for row in rows]}
    show(as_json, data, lambda out: _text(out, rows, kind, every))


def _data(row: PlaceRow, kind: str) -> dict[str, Any]:
    """Of a cache only what data tells: what failed on a machine says nothing of it."""
    data = row.to_data()
    return {name: data[name] for name in _OF_CACHES} if kind == "cache" else data


def _places(known: Knowledge, kind: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    if kind == "machine":
        return known.machines, known.avoided_machines
    return (known.caches, {}) if kind == "cache" else (known.sites, known.avoided_sites)


def _text(out: Console, rows: list[PlaceRow], kind: str, every: bool) -> None:
    if not rows:
        out.print("nothing is known yet: it is learned when attempts end")
        return
    shown = rows if every or len(rows) <= _MOST else rows[: _MOST // 2] + rows[-_MOST // 2 :]
    out.print(_table(shown, kind, out.width))
    if len(shown) < len(rows):
        out.print(f"{len(rows) - len(shown)} between these are left out; -a shows all", style="dim")
    for row in (row for row in rows if row.avoided):
        out.print(f"{row.name} is avoided by new runs: {row.avoided}", style="yellow", markup=False)
    out.print(f"what is {HALF_LIFE_S / 86400:g} days old counts half", style="dim")
    if kind == "site":
        say_next(("packtrain sites --machines", "machines"), ("packtrain sites --caches", "where data came from"))


def _table(rows: list[PlaceRow], kind: str, width: int) -> Table:
    """In a narrow terminal the last columns are left out."""
    columns = [(title, style, [cell(row) for row in rows]) for title, style, cell in _COLUMNS[kind]]
    while len(columns) > 2 and sum(_width(title, cells) for title, _, cells in columns) > width:
        columns.pop()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title, style, _ in columns:
        digits = title not in (kind, *_LEFT)
        table.add_column(title, style=style, justify="right" if digits else "left", no_wrap=True)
    for cells in zip(*(cells for _, _, cells in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _width(title: str, cells: list[str]) -> int:
    return max(len(title), *map(len, cells)) + 2


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else formatting.duration(seconds)


_LEFT = ("outcomes", "speeds", "last")
Column = tuple[str, str, Callable[[PlaceRow], str]]
_FAILED: Column = ("failed", "", lambda row: f"{row.failed:.0%}")
_OUTCOMES: Column = ("outcomes", "cyan", lambda row: row.outcomes)
_ATTEMPTS: Column = ("attempts", "", lambda row: str(row.attempts))
_COMPUTE: Column = ("compute", "", lambda row: _duration(row.compute_s))
_SLOWNESS: Column = ("to usual", "", lambda row: "" if row.slowness is None else f"{row.slowness:.2f}×")
_TRANSFER: Column = ("transfer", "", lambda row: _duration(row.transfer_s))
_SPEED: Column = ("speed", "", lambda row: "" if row.speed is None else f"{formatting.size(row.speed)}/s")
_SPEEDS: Column = ("speeds", "green", lambda row: row.speeds)
_LAST: Column = ("last", "dim", lambda row: formatting.ago(max(0.0, time.time() - row.last)))
_OF_PLACES = (_ATTEMPTS, _FAILED, _OUTCOMES, _SLOWNESS, _COMPUTE, _TRANSFER, _SPEED, _LAST, _SPEEDS)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "site": (("site", "bold", lambda row: row.name), *_OF_PLACES),
    "machine": (("machine", "bold", lambda row: row.name), *_OF_PLACES),
    "cache": (("cache", "bold", lambda row: row.name), _ATTEMPTS, _TRANSFER, _SPEED, _SPEEDS, _LAST),
}
_OF_CACHES = ("name", "attempts", "transfer_s", "speed", "last", "speeds")
