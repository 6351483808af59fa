"""packtrain depot"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.cli.ui.output import count, dry_run_option, json_option, say_next, show
from packtrain.errors import NotFoundError, UsageError
from packtrain.transfer.cache import DEFAULT_CAP, Depot, Entry

_KEY_SHOWN = 12


@click.command(name="depot")
@click.argument("action", type=click.Choice(["ls", "rm"]), default="ls")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="rm: everything that no job uses.")
@click.option(
    "--folder",
    envvar="PACKTRAIN_DEPOT",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Where the depot lies.",
)
@dry_run_option
@json_option
def command(action: str, keys: tuple[str, ...], every: bool, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """List what the depot holds (ls), or remove it (rm): fetched data that jobs share, so that each object is
    fetched once.

    A KEY is what `ls` shows; its beginning is enough. Jobs use the depot that $PACKTRAIN_DEPOT names when they are
    started, up to $PACKTRAIN_DEPOT_CAP bytes.
    """
    if folder is None:
        raise UsageError("there is no depot: set PACKTRAIN_DEPOT to a folder, or name one with --folder")
    depot = Depot(folder)
    if action == "ls":
        _refuse_rest(keys, every)
        _list(depot, folder, as_json)
    else:
        _remove(depot, keys, every, dry_run, as_json)


def _refuse_rest(keys: Sequence[str], every: bool) -> None:
    if keys or every:
        raise UsageError("`depot ls` lists everything; keys and --all belong to `depot rm`")


def _list(depot: Depot, folder: Path, as_json: bool) -> None:
    entries = depot.entries()
    data = {
        "folder": str(folder),
        "bytes": _total(entries),
        "cap_bytes": _cap(),
        "objects": [_entry_data(entry) for entry in entries],
    }
    show(as_json, data, lambda out: _text(out, folder, entries))


def _text(out: Console, folder: Path, entries: Sequence[Entry]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("key", "size", "last used", "name", "source"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for entry in entries:
        name = entry.name if entry.complete else f"{entry.name} (on its way)"
        used = formatting.ago(time.time() - entry.used)
        table.add_row(entry.key[:_KEY_SHOWN], formatting.size(entry.bytes), used, Text(name), Text(entry.source))
    if entries:
        out.print(table)
    held = f"{count(len(entries), 'object')}, {formatting.size(_total(entries))} of at most {formatting.size(_cap())}"
    out.print(f"{folder}: {held}", markup=False)
    if entries:
        say_next(("packtrain depot rm KEY", "remove one"), ("packtrain depot rm --all", "remove all that no job uses"))


def _remove(depot: Depot, keys: Sequence[str], every: bool, dry_run: bool, as_json: bool) -> None:
    if every == bool(keys):
        raise UsageError("name the keys that `packtrain depot ls` shows, or say --all")
    entries = depot.entries()
    wanted = entries if every else [_found(entries, key) for key in keys]
    gone = wanted if dry_run else _removed(depot, wanted, every)
    words = f"{'would remove' if dry_run else 'removed'} {count(len(gone), 'object')}, {formatting.size(_total(gone))}"
    kept = f"; {len(wanted) - len(gone)} in use were left" if len(gone) < len(wanted) else ""
    data = {"removed": [_entry_data(entry) for entry in gone], "bytes": _total(gone), "dry_run": dry_run}
    show(as_json, data, lambda out: out.print(words + kept))


def _removed(depot: Depot, wanted: Sequence[Entry], every: bool) -> list[Entry]:
    """With --all, objects in use are passed over; by name they are an error."""
    return depot.clear() if every else [depot.remove(entry.key) for entry in wanted]


def _found(entries: Sequence[Entry], key: str) -> Entry:
    found = [entry for entry in entries if entry.key.startswith(key)]
    if not found:
        raise NotFoundError(f"the depot has no object {key!r}; `packtrain depot ls` lists them")
    if len(found) > 1:
        raise UsageError(f"{key!r} is the beginning of {len(found)} keys; write more of it")
    return found[0]


def _entry_data(entry: Entry) -> dict[str, Any]:
    return asdict(entry)


def _total(entries: Sequence[Entry]) -> int:
    return sum(entry.bytes for entry in entries)


def _cap() -> int:
    stated = os.environ.get("PACKTRAIN_DEPOT_CAP", "")
    return int(stated) if stated.isdigit() else DEFAULT_CAP
