"""Stage check: test every expectation of the plan against the output folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.outputs.inventory import format_contents, total_size
from packtrain.agent.processes.error_patterns import DEFAULT_KIND, classify_error
from packtrain.agent.processes.output_capture import LogFile, OutputCapture
from packtrain.agent.processes.process_table import ChildProcess, ProcessSpec
from packtrain.agent.watched_files import match_files
from packtrain.errors import FailedError
from packtrain.plan import ExpectedOutput

if TYPE_CHECKING:
    from packtrain.agent.outputs.validators import CancelCheck

_LOG_TAIL_BYTES = 4096
_MISSING_OUTPUT_KINDS = ("output_missing", "output_empty")

RunCheckCommand = Callable[[str, Path], Optional[str]]
"""Runs the command of a check on a file, and returns the problem or None."""


def check_outputs(context: AttemptContext, stats: StageStats) -> None:
    """Test all expectations and count the matching files.

    Raises FailedError: output_missing, output_empty, output_invalid, or the kind that a step's log explains.
    """
    try:
        stats["files"] = sum(_check_expected(context, expected) for expected in context.job.expect)
    except FailedError as error:
        raise (_explain_missing_output(context, error) if error.kind in _MISSING_OUTPUT_KINDS else error) from error


def _explain_missing_output(context: AttemptContext, error: FailedError) -> FailedError:
    """Search the logs for the cause, because a script may hide the failure of its program behind exit code 0."""
    for line in _last_log_lines(context):
        kind = classify_error(0, line)
        if kind != DEFAULT_KIND:
            return FailedError(kind, f"{error}; the log of a step ends with: {line}")
    return error


def _last_log_lines(context: AttemptContext) -> Iterator[str]:
    """Yield the last line of each step's stderr, the most recently written log first."""
    with suppress(OSError):
        logs = sorted(
            context.sandbox.attempt_folder.logs.glob("*.err"), key=lambda log: log.stat().st_mtime, reverse=True
        )
        for log in logs:
            capture = OutputCapture(context.redactor)
            with open(log, "rb") as file:
                file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
                capture.feed(file.read())
            capture.close()
            yield capture.last_line()


def _check_expected(context: AttemptContext, expected: ExpectedOutput) -> int:
    def run_command(command: str, path: Path) -> str | None:
        return _run_check_command(context, command, path)

    return check_expectation(expected, context.sandbox.output, run_command, context.stop.check)


def check_expectation(
    expected: ExpectedOutput, folder: Path, run_command: RunCheckCommand, check_cancelled: CancelCheck = lambda: None
) -> int:
    """Test one expectation and return the number of matching files.

    Raises FailedError: output_missing, output_empty, output_invalid.
    """
    paths = match_files(expected.path, folder)
    _check_count(expected, len(paths), folder)
    for path in paths:
        _check_size(expected, path, folder)
        _check_format(expected, path, folder, check_cancelled)
        _check_command(expected, path, folder, run_command)
    return len(paths)


def _check_count(expected: ExpectedOutput, count: int, folder: Path) -> None:
    if count < expected.min_count:
        required = "it" if expected.min_count == 1 else f"at least {expected.min_count}"
        matching = "1 file matches" if count == 1 else f"{count} files match"
        raise FailedError(
            "output_missing",
            f"the expected output {expected.path!r} is missing: {matching}, {required} should exist; "
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

    for key, validate in validators_for(expected):
        problem = "it is a folder, not a file" if path.is_dir() else validate(path, check_cancelled)
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


def _run_check_command(context: AttemptContext, command: str, path: Path) -> str | None:
    """Run a check's command, and return its exit code and last line of output if it fails."""
    context.stop.check()
    sandbox = context.sandbox
    variables = {**os.environ, "PACKTRAIN_FILE": str(path), "PACKTRAIN_OUTPUT": str(sandbox.output)}
    program = ProcessSpec(("/bin/sh", "-c", command), variables, sandbox.output)
    out, err = (LogFile(context.redactor, sandbox.attempt_folder.logs / f"check.{stream}") for stream in ("out", "err"))
    exit_code = _wait_or_terminate(context, context.processes.start(program, out, err))
    context.stop.check()
    return None if exit_code == 0 else f"exit code {exit_code}{_format_last_line(err) or _format_last_line(out)}"


def _wait_or_terminate(context: AttemptContext, child: ChildProcess) -> int:
    """Return the exit code of the child, which is terminated when a stop is requested."""
    codes: list[int] = []
    waiter = threading.Thread(target=lambda: codes.append(child.wait()), name="check", daemon=True)
    waiter.start()
    while waiter.is_alive() and not context.stop.is_requested:
        waiter.join(0.05)
    if waiter.is_alive():
        context.processes.terminate_all()
    waiter.join()
    return codes[0]


def _format_last_line(capture: OutputCapture) -> str:
    line = capture.last_line()
    return f": {line}" if line else ""
