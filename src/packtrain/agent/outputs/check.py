"""Stage check: every `expect` of the plan, and the commands that judge files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.outputs.inventory import check_expectation
from packtrain.agent.processes.error_patterns import DEFAULT_KIND, classify_error
from packtrain.agent.processes.output_capture import LogFile, OutputCapture
from packtrain.agent.processes.process_table import ChildProcess, ProcessSpec
from packtrain.errors import FailedError
from packtrain.plan import ExpectedOutput

_LOG_TAIL_BYTES = 4096  # bytes of a log
_MISSING_OUTPUT_KINDS = ("output_missing", "output_empty")


def check_outputs(context: AttemptContext, stats: StageStats) -> None:
    """Raises FailedError: output_missing, output_empty, output_invalid, or why there is no output, if a step said it."""
    try:
        stats["files"] = sum(_check_expected(context, expected) for expected in context.job.expect)
    except FailedError as error:
        raise (_explain_missing_output(context, error) if error.kind in _MISSING_OUTPUT_KINDS else error) from error


def _explain_missing_output(context: AttemptContext, error: FailedError) -> FailedError:
    """A script may hide the failure of its program behind a status of 0: then its last words tell what failed."""
    for words in _last_log_lines(context):
        kind = classify_error(0, words)
        if kind != DEFAULT_KIND:
            return FailedError(kind, f"{error}; a step's last words: {words}")
    return error


def _last_log_lines(context: AttemptContext) -> Iterator[str]:
    """Of all steps, the newest first."""
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


def _run_check_command(context: AttemptContext, command: str, path: Path) -> str | None:
    """What the command has against the file, in its own last words."""
    context.stop.check()
    box = context.sandbox
    variables = {**os.environ, "PACKTRAIN_FILE": str(path), "PACKTRAIN_OUTPUT": str(box.output)}
    program = ProcessSpec(("/bin/sh", "-c", command), variables, box.output)
    out, err = (LogFile(context.redactor, box.attempt_folder.logs / f"check.{stream}") for stream in ("out", "err"))
    code = _wait_or_terminate(context, context.processes.start(program, out, err))
    context.stop.check()
    return None if code == 0 else f"exit code {code}{_format_last_line(err) or _format_last_line(out)}"


def _wait_or_terminate(context: AttemptContext, child: ChildProcess) -> int:
    """Its exit code; it is ended when a stop is requested."""
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
    words = capture.last_line()
    return f": {words}" if words else ""
