"""Stage check: every `expect` of the plan, and the commands that judge files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packtrain.agent.context import Context, Tally
from packtrain.agent.outputs.inventory import check
from packtrain.agent.steps.error_patterns import NOTHING_MORE, kind_of
from packtrain.agent.steps.logs import Capture, LogFile
from packtrain.agent.steps.processes import Child, Program
from packtrain.errors import FailedError
from packtrain.plan import Expect

_END = 4096  # bytes of a log
_NOT_MADE = ("output_missing", "output_empty")


def check_outputs(context: Context, tally: Tally) -> None:
    """Raises FailedError: output_missing, output_empty, output_wrong, or why there is no output, if a step said it."""
    try:
        tally["files"] = sum(_check(context, expected) for expected in context.job.expect)
    except FailedError as error:
        raise (_explained(context, error) if error.kind in _NOT_MADE else error) from error


def _explained(context: Context, error: FailedError) -> FailedError:
    """A script may hide the failure of its program behind a status of 0: then its last words tell what failed."""
    for words in _last_words(context):
        kind = kind_of(0, words)
        if kind != NOTHING_MORE:
            return FailedError(kind, f"{error}; a step's last words: {words}")
    return error


def _last_words(context: Context) -> Iterator[str]:
    """Of all steps, the newest first."""
    with suppress(OSError):
        logs = sorted(context.box.home.logs.glob("*.err"), key=lambda log: log.stat().st_mtime, reverse=True)
        for log in logs:
            capture = Capture(context.redactor)
            with open(log, "rb") as file:
                file.seek(max(0, log.stat().st_size - _END))
                capture.feed(file.read())
            capture.close()
            yield capture.last_words()


def _check(context: Context, expected: Expect) -> int:
    def run(command: str, path: Path) -> str | None:
        return _judge(context, command, path)

    return check(expected, context.box.output, run, context.stop.check)


def _judge(context: Context, command: str, path: Path) -> str | None:
    """What the command has against the file, in its own last words."""
    context.stop.check()
    box = context.box
    variables = {**os.environ, "PACKTRAIN_FILE": str(path), "PACKTRAIN_OUTPUT": str(box.output)}
    program = Program(("/bin/sh", "-c", command), variables, box.output)
    out, err = (LogFile(context.redactor, box.home.logs / f"check.{stream}") for stream in ("out", "err"))
    code = _wait(context, context.processes.start(program, out, err))
    context.stop.check()
    return None if code == 0 else f"exit code {code}{_words(err) or _words(out)}"


def _wait(context: Context, child: Child) -> int:
    """Its exit code; it is ended when a stop is requested."""
    codes: list[int] = []
    waiter = threading.Thread(target=lambda: codes.append(child.wait()), name="check", daemon=True)
    waiter.start()
    while waiter.is_alive() and not context.stop.requested:
        waiter.join(0.05)
    if waiter.is_alive():
        context.processes.terminate_all()
    waiter.join()
    return codes[0]


def _words(capture: Capture) -> str:
    words = capture.last_words()
    return f": {words}" if words else ""
