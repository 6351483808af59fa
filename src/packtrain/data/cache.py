"""The user's download cache: what it holds, and removing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from packtrain.errors import NotFoundError, UsageError
from packtrain.transfer.cache import DEFAULT_MAX_BYTES, CacheEntry, DownloadCache

__all__ = ["CacheEntry", "list_entries", "max_cache_bytes", "remove_entries", "select_entries"]


def list_entries(folder: Path) -> list[CacheEntry]:
    """Return all entries, the least recently used first."""
    return DownloadCache(folder).entries()


def select_entries(folder: Path, keys: Sequence[str]) -> list[CacheEntry]:
    """Return the entries whose keys begin as given, or all entries without keys.

    Raises:
        NotFoundError: No entry has such a key.
        UsageError: Several entries have.
    """
    entries = list_entries(folder)
    return [_find_entry(entries, key) for key in keys] if keys else entries


def _find_entry(entries: Sequence[CacheEntry], key_prefix: str) -> CacheEntry:
    matches = [entry for entry in entries if entry.key.startswith(key_prefix)]
    if not matches:
        raise NotFoundError(f"the download cache has no object {key_prefix!r}; `packtrain cache ls` lists them")
    if len(matches) > 1:
        raise UsageError(f"{key_prefix!r} matches {len(matches)} keys; give more characters")
    return matches[0]


def remove_entries(folder: Path, keys: Sequence[str]) -> list[CacheEntry]:
    """Remove entries and return those removed. Without keys, remove all that no job uses.

    Raises:
        NotFoundError, UsageError: See `select_entries`.
        UnavailableError: A job uses an entry that was named.
    """
    cache = DownloadCache(folder)
    return [cache.remove(entry.key) for entry in select_entries(folder, keys)] if keys else cache.clear()


def max_cache_bytes() -> int:
    """Return the maximum size of the cache."""
    value = os.environ.get("PACKTRAIN_CACHE_LIMIT", "")
    return int(value) if value.isdigit() else DEFAULT_MAX_BYTES
