"""List the outputs: for messages, for the decision whether the steps finished, and for the event `agent.ended`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packtrain.agent.watched_files import match_files, walk_files
from packtrain.plan import Job
from packtrain.transfer.integrity.digests import sha256_file

_MAX_NAMES_IN_MESSAGE = 10
MAX_LISTED_OUTPUTS = 1000  # entries in the event `agent.ended`; a longer list is a file next to the outputs


def has_final_outputs(job: Job, folder: Path) -> bool:
    """Return whether every expected output exists, and not only checkpoints, which exist long before the end."""
    paths = job.checkpoint.paths if job.checkpoint and job.checkpoint.is_in_output else ()
    checkpoints = {match for path in paths for match in match_files(path, folder)}
    matches = [set(match_files(expected.path, folder)) for expected in job.expect]
    return all(matches) and any(paths - checkpoints for paths in matches)


def format_contents(folder: Path) -> str:
    """Return the first file names of the folder, for a message."""
    names = [str(path.relative_to(folder)) for path in walk_files(folder)]
    more = f" and {len(names) - _MAX_NAMES_IN_MESSAGE} more" if len(names) > _MAX_NAMES_IN_MESSAGE else ""
    return ", ".join(names[:_MAX_NAMES_IN_MESSAGE]) + more if names else "nothing"


def total_size(path: Path) -> int:
    """Return the size of a file, or of all files below a folder, in bytes."""
    files = walk_files(path) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def list_outputs(folder: Path, with_digest: bool, max_digests: int | None = MAX_LISTED_OUTPUTS) -> list[dict[str, Any]]:
    """Return an entry for each file; with a digest if it is among the first `max_digests` (None: any number)."""
    paths = [path for path in walk_files(folder) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    return [
        _output_entry(path, name, with_digest and (max_digests is None or n < max_digests))
        for n, (path, name) in enumerate(zip(paths, names))
    ]


def write_output_list(entries: list[dict[str, Any]], path: Path) -> None:
    """Write one JSON line for each output, so that the submit side can check that all of them arrived."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")


def _output_entry(path: Path, name: str, with_digest: bool) -> dict[str, Any]:
    entry = {"path": name, "bytes": path.stat().st_size}
    return {**entry, "sha256": sha256_file(path)} if with_digest else entry


def with_prefix(prefix: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with a prefix before each path."""
    return [{**entry, "path": prefix + entry["path"]} for entry in entries]
