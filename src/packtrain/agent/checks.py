"""Stage check: every `expect` of the plan, and the commands that judge files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from packtrain.agent.context import Context, Tally
from packtrain.agent.logs import Capture, LogFile
from packtrain.agent.outputs import check
from packtrain.agent.process import Child, Program
from packtrain.plan import Expect


def check_outputs(context: Context, tally: Tally) -> None:
    """Raises FailedError: output_missing, output_empty, output_wrong."""
    tally["files"] = sum(_check(context, expected) for expected in context.job.expect)


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
