"""Does the output folder hold what the plan expects? An exit code of 0 means that it does."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from packtrain.errors import FailedError
from packtrain.plan import ExpectedOutput, Job
from packtrain.transfer.digests import sha256_file

if TYPE_CHECKING:
    from packtrain.agent.outputs.validators import CancelCheck

_MAX_NAMES_IN_MESSAGE = 10
MAX_LISTED_OUTPUTS = 1000  # in an event; a longer list is a file beside the outputs

RunCheckCommand = Callable[[str, Path], Optional[str]]
"""Runs a check's command for a file; what went wrong, or None."""


def check_expectation(
    expected: ExpectedOutput, folder: Path, run_command: RunCheckCommand, check_cancelled: CancelCheck = lambda: None
) -> int:
    """How many files met the expectation. Raises FailedError: output_missing, output_empty, output_invalid."""
    found = match_files(expected.path, folder)
    _check_count(expected, len(found), folder)
    for path in found:
        _check_size(expected, path, folder)
        _check_format(expected, path, folder, check_cancelled)
        _check_command(expected, path, folder, run_command)
    return len(found)


def match_files(pattern: str, folder: Path) -> list[Path]:
    """Files that the pattern names; folders, where it names nothing else."""
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise FailedError("output_invalid", f"`expect` names {pattern!r}, which is not below the output folder")
    # Unlike Path.glob, it takes any pattern: `**.pt` is no error.
    found = sorted(map(Path, glob.glob(f"{glob.escape(str(folder))}/{pattern}", recursive=True)))  # noqa: PTH207
    return [path for path in found if path.is_file()] or [path for path in found if path.is_dir() and path != folder]


def has_final_outputs(job: Job, folder: Path) -> bool:
    """Whether all that is expected is there, and not only a checkpoint, which is there long before the end."""
    wanted = job.checkpoint
    early = set(match_files(wanted.path, folder)) if wanted else set()
    found = [set(match_files(expected.path, folder)) for expected in job.expect]
    return all(found) and any(paths - early for paths in found)


def _check_count(expected: ExpectedOutput, count: int, folder: Path) -> None:
    if count < expected.min_count:
        wanted = "it" if expected.min_count == 1 else f"at least {expected.min_count}"
        raise FailedError(
            "output_missing",
            f"the expected output {expected.path!r} is missing: {count} files match, {wanted} should exist; "
            f"the output folder contains {format_contents(folder)}",
        )
    if expected.max_count is not None and count > expected.max_count:
        raise FailedError(
            "output_invalid",
            f"the expected output {expected.path!r} matches {count} files, at most {expected.max_count} should exist; "
            f"the output folder contains {format_contents(folder)}",
        )


def _check_size(expected: ExpectedOutput, path: Path, folder: Path) -> None:
    size, name = total_size(path), path.relative_to(folder)
    if size < expected.min_bytes:
        raise FailedError(
            "output_empty",
            f"the expected output {name} has {size} bytes, at least {expected.min_bytes} were expected; "
            f"the output folder contains {format_contents(folder)}",
        )
    if expected.max_bytes is not None and size > expected.max_bytes:
        raise FailedError(
            "output_invalid",
            f"the expected output {name} has {size} bytes, at most {expected.max_bytes} were expected; "
            f"the output folder contains {format_contents(folder)}",
        )


def _check_format(expected: ExpectedOutput, path: Path, folder: Path, check_cancelled: CancelCheck) -> None:
    from packtrain.agent.outputs.validators import validators_for

    for key, judge in validators_for(expected):
        problem = "it is a folder, not a file" if path.is_dir() else judge(path, check_cancelled)
        if problem is not None:
            raise FailedError(
                "output_invalid",
                f"the expected output {path.relative_to(folder)} did not pass its check `{key}`: {problem}",
            )


def _check_command(expected: ExpectedOutput, path: Path, folder: Path, run_command: RunCheckCommand) -> None:
    problem = run_command(expected.command, path) if expected.command else None
    if problem is not None:
        raise FailedError(
            "output_invalid",
            f"the expected output {path.relative_to(folder)} did not pass its check `{expected.command}`: {problem}",
        )


def format_contents(folder: Path) -> str:
    """The first names, for a message."""
    names = [str(path.relative_to(folder)) for path in walk_files(folder)]
    more = f" and {len(names) - _MAX_NAMES_IN_MESSAGE} more" if len(names) > _MAX_NAMES_IN_MESSAGE else ""
    return ", ".join(names[:_MAX_NAMES_IN_MESSAGE]) + more if names else "nothing"


def walk_files(folder: Path) -> Iterator[Path]:
    """Every file, in the order of names."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where) / name for name in sorted(names))


def total_size(path: Path) -> int:
    files = walk_files(path) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def list_outputs(folder: Path, with_digest: bool) -> list[dict[str, Any]]:
    """What the folder holds; digests of the first ones, which the event that ends the attempt has room for."""
    found = [path for path in walk_files(folder) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in found]
    return [
        _output_entry(path, name, with_digest and n < MAX_LISTED_OUTPUTS)
        for n, (path, name) in enumerate(zip(found, names))
    ]


def write_output_list(entries: list[dict[str, Any]], path: Path) -> None:
    """One line an output, for whoever has to know whether all of them arrived."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")


def _output_entry(path: Path, name: str, with_digest: bool) -> dict[str, Any]:
    entry = {"path": name, "bytes": path.stat().st_size}
    return {**entry, "sha256": sha256_file(path)} if with_digest else entry


def with_prefix(prefix: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same files, below another place."""
    return [{**entry, "path": prefix + entry["path"]} for entry in entries]
