"""packtrain cache"""

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
from packtrain.cli.ui.output import dry_run_option, json_option, pluralize, print_next_commands, print_result
from packtrain.errors import NotFoundError, UsageError
from packtrain.transfer.cache import DEFAULT_MAX_BYTES, CacheEntry, DownloadCache

_KEY_CHARS_SHOWN = 12


@click.command(name="cache")
@click.argument("action", type=click.Choice(["ls", "rm"]), default="ls")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="rm: everything that no job uses.")
@click.option(
    "--folder",
    envvar="PACKTRAIN_CACHE",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Where the depot lies.",
)
@dry_run_option
@json_option
def command(
    action: str, keys: tuple[str, ...], remove_all: bool, cache_dir: Path | None, dry_run: bool, as_json: bool
) -> None:
    """List what the depot holds (ls), or remove it (rm): fetched data that jobs share, so that each object is
    fetched once.

    A KEY is what `ls` shows; its beginning is enough. Jobs use the depot that $PACKTRAIN_CACHE names when they are
    started, up to $PACKTRAIN_CACHE_LIMIT bytes.
    """
    if cache_dir is None:
        raise UsageError("there is no depot: set PACKTRAIN_CACHE to a folder, or name one with --folder")
    depot = DownloadCache(cache_dir)
    if action == "ls":
        _reject_ls_arguments(keys, remove_all)
        _print_entries(depot, cache_dir, as_json)
    else:
        _remove_entries(depot, keys, remove_all, dry_run, as_json)


def _reject_ls_arguments(keys: Sequence[str], remove_all: bool) -> None:
    if keys or remove_all:
        raise UsageError("`depot ls` lists everything; keys and --all belong to `depot rm`")


def _print_entries(cache: DownloadCache, cache_dir: Path, as_json: bool) -> None:
    entries = cache.entries()
    data = {
        "folder": str(cache_dir),
        "bytes": _total_bytes(entries),
        "cap_bytes": _max_cache_bytes(),
        "objects": [_entry_data(entry) for entry in entries],
    }
    print_result(as_json, data, lambda out: _print_table(out, cache_dir, entries))


def _print_table(out: Console, cache_dir: Path, entries: Sequence[CacheEntry]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("key", "size", "last used", "name", "source"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for entry in entries:
        name = entry.name if entry.is_complete else f"{entry.name} (on its way)"
        used = formatting.format_age(time.time() - entry.last_used_at)
        table.add_row(
            entry.key[:_KEY_CHARS_SHOWN], formatting.format_size(entry.bytes), used, Text(name), Text(entry.source)
        )
    if entries:
        out.print(table)
    held = f"{pluralize(len(entries), 'object')}, {formatting.format_size(_total_bytes(entries))} of at most {formatting.format_size(_max_cache_bytes())}"
    out.print(f"{cache_dir}: {held}", markup=False)
    if entries:
        print_next_commands(
            ("packtrain cache rm KEY", "remove one"), ("packtrain cache rm --all", "remove all that no job uses")
        )


def _remove_entries(cache: DownloadCache, keys: Sequence[str], remove_all: bool, dry_run: bool, as_json: bool) -> None:
    if remove_all == bool(keys):
        raise UsageError("name the keys that `packtrain cache ls` shows, or say --all")
    entries = cache.entries()
    wanted = entries if remove_all else [_find_entry(entries, key) for key in keys]
    gone = wanted if dry_run else _delete_entries(cache, wanted, remove_all)
    words = f"{'would remove' if dry_run else 'removed'} {pluralize(len(gone), 'object')}, {formatting.format_size(_total_bytes(gone))}"
    kept = f"; {len(wanted) - len(gone)} in use were left" if len(gone) < len(wanted) else ""
    data = {"removed": [_entry_data(entry) for entry in gone], "bytes": _total_bytes(gone), "dry_run": dry_run}
    print_result(as_json, data, lambda out: out.print(words + kept))


def _delete_entries(cache: DownloadCache, entries: Sequence[CacheEntry], remove_all: bool) -> list[CacheEntry]:
    """With --all, objects in use are passed over; by name they are an error."""
    return cache.clear() if remove_all else [cache.remove(entry.key) for entry in entries]


def _find_entry(entries: Sequence[CacheEntry], key_prefix: str) -> CacheEntry:
    found = [entry for entry in entries if entry.key.startswith(key_prefix)]
    if not found:
        raise NotFoundError(f"the depot has no object {key_prefix!r}; `packtrain cache ls` lists them")
    if len(found) > 1:
        raise UsageError(f"{key_prefix!r} is the beginning of {len(found)} keys; write more of it")
    return found[0]


def _entry_data(entry: CacheEntry) -> dict[str, Any]:
    return asdict(entry)


def _total_bytes(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.bytes for entry in entries)


def _max_cache_bytes() -> int:
    stated = os.environ.get("PACKTRAIN_CACHE_LIMIT", "")
    return int(stated) if stated.isdigit() else DEFAULT_MAX_BYTES
