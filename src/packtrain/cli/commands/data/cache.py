"""packtrain cache"""

from __future__ import annotations

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
from packtrain.cli.ui.output import dry_run_option, json_option, print_next_commands, print_result
from packtrain.data.cache import CacheEntry, list_entries, max_cache_bytes, remove_entries, select_entries
from packtrain.errors import UsageError
from packtrain.formatting import pluralize

_KEY_CHARS_SHOWN = 12


@click.command(name="cache")
@click.argument("action", type=click.Choice(["ls", "rm"]), default="ls")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "remove_all", is_flag=True, help="rm: remove everything that no job uses.")
@click.option(
    "--cache-dir",
    envvar="PACKTRAIN_CACHE",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Folder of the download cache.",
)
@dry_run_option
@json_option
def command(
    action: str, keys: tuple[str, ...], remove_all: bool, cache_dir: Path | None, dry_run: bool, as_json: bool
) -> None:
    """List (ls) or remove (rm) files in the download cache, which jobs share so that each file is downloaded once.

    KEY is a key that `ls` shows, or the beginning of one. Jobs use the cache if $PACKTRAIN_CACHE is set when the run
    starts; $PACKTRAIN_CACHE_LIMIT sets its maximum size in bytes.
    """
    if cache_dir is None:
        raise UsageError("there is no download cache; set PACKTRAIN_CACHE to a folder, or use --cache-dir")
    if action == "ls":
        _reject_ls_arguments(keys, remove_all)
        _print_entries(cache_dir, as_json)
    else:
        _remove_entries(cache_dir, keys, remove_all, dry_run, as_json)


def _reject_ls_arguments(keys: Sequence[str], remove_all: bool) -> None:
    if keys or remove_all:
        raise UsageError("`cache ls` takes no keys and no --all; they belong to `cache rm`")


def _print_entries(cache_dir: Path, as_json: bool) -> None:
    entries = list_entries(cache_dir)
    data = {
        "folder": str(cache_dir),
        "bytes": _total_bytes(entries),
        "max_bytes": max_cache_bytes(),
        "objects": [_entry_data(entry) for entry in entries],
    }
    print_result(as_json, data, lambda out: _print_table(out, cache_dir, entries))


def _print_table(out: Console, cache_dir: Path, entries: Sequence[CacheEntry]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("key", "size", "last used", "name", "source"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for entry in entries:
        name = entry.name if entry.is_complete else f"{entry.name} (downloading)"
        age = formatting.format_age(time.time() - entry.last_used_at)
        table.add_row(
            entry.key[:_KEY_CHARS_SHOWN], formatting.format_size(entry.bytes), age, Text(name), Text(entry.source)
        )
    if entries:
        out.print(table)
    used, limit = formatting.format_size(_total_bytes(entries)), formatting.format_size(max_cache_bytes())
    out.print(f"{cache_dir}: {pluralize(len(entries), 'object')}, {used} of at most {limit}")
    if entries:
        print_next_commands(
            ("packtrain cache rm KEY", "remove one"), ("packtrain cache rm --all", "remove all that no job uses")
        )


def _remove_entries(cache_dir: Path, keys: Sequence[str], remove_all: bool, dry_run: bool, as_json: bool) -> None:
    if remove_all == bool(keys):
        raise UsageError("give keys from `packtrain cache ls`, or --all")
    selected = select_entries(cache_dir, keys)
    removed = selected if dry_run else remove_entries(cache_dir, keys)
    n_bytes, n_in_use = _total_bytes(removed), len(selected) - len(removed)
    verb = "would remove" if dry_run else "removed"
    text = f"{verb} {pluralize(len(removed), 'object')}, {formatting.format_size(n_bytes)}"
    if n_in_use:
        text += f"; did not remove {n_in_use} in use"
    data = {"removed": [_entry_data(entry) for entry in removed], "bytes": n_bytes, "dry_run": dry_run}
    print_result(as_json, data, lambda out: out.print(text))


def _entry_data(entry: CacheEntry) -> dict[str, Any]:
    return asdict(entry)


def _total_bytes(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.bytes for entry in entries)
