"""Stage sync: the output folder to where the plan wants it, while the steps run and at the end.

What a failed attempt leaves goes below `.packtrain/EMITTER/` of the destination: worth keeping,
but never where the user looks for results.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import Context, Tally
from packtrain.agent.file_versions import Version, is_temporary, version_of
from packtrain.agent.live.progress import Progress
from packtrain.agent.outputs.inventory import files_below
from packtrain.agent.outputs.symlinks import settle
from packtrain.errors import FailedError
from packtrain.plan import Output
from packtrain.transfer.urls import shown

if TYPE_CHECKING:
    from packtrain.transfer.upload import Uploaded

_LOOK_EVERY_S = 5.0
_MOST_TOLD = 5


def partial_prefix(context: Context) -> str:
    return f".packtrain/{context.journal.emitter}/"


def left_prefix(context: Context) -> str:
    """Of an attempt that left in time: its successor brings them back."""
    from packtrain.agent.checkpoints.record import left_folder

    return f"{left_folder(context.journal.emitter)}/"


def sync_outputs(context: Context, prefix: str, tally: Tally) -> None:
    """Copy everything, once and finally. Where that fails, the outputs stay in the attempt's folder."""
    if not context.box.output.is_dir():
        raise FailedError("output_missing", "there are no outputs: a step removed the output folder itself")
    if context.job.output is None:
        tally["files"] = sum(1 for _ in files_below(context.box.output))
        keep(context, prefix)
        return
    try:
        _upload(context, context.job.output, prefix, tally)
    except Exception:
        keep(context, partial_prefix(context))
        raise


def _upload(context: Context, output: Output, prefix: str, tally: Tally) -> None:
    """In a thread that is left behind when time is up: a put that hangs cannot be told to stop."""
    outcome: queue.SimpleQueue[Uploaded | Exception] = queue.SimpleQueue()
    hurry = within_grace(context)

    def work() -> None:
        try:
            outcome.put(_upload_all(context, output, prefix, hurry))
        except Exception as error:
            outcome.put(error)

    thread = threading.Thread(target=work, name="sync", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        hurry()
    done = outcome.get()
    if isinstance(done, Exception):
        raise done
    tally.update(files=done.files, bytes=done.bytes, source=shown(output.ref.url))


def _upload_all(context: Context, output: Output, prefix: str, stop: Callable[[], None]) -> Uploaded:
    from packtrain.agent.checkpoints.store import note_end
    from packtrain.transfer.upload import upload_folder

    if not prefix:
        note_end(context)
    return upload_folder(
        context.box.output,
        output,
        context.secrets.reveal,
        prefix=prefix,
        stop=stop,
        progress=Progress(context.journal, "sync", None).part(""),
        patience_s=context.job.patience_s if output.patience_s is None else output.patience_s,
    )


def within_grace(context: Context) -> Callable[[], None]:
    """For copying that goes on after TERM: the steps have the grace period, and all copying has it once more.
    Ahead of a limit it has the time up to that: this is what it was reserved for."""

    def check() -> None:
        since = context.stop.since
        if since is not None and time.monotonic() > max(since + 2 * context.job.limits.grace_s, context.stop.by):
            _give_up(context)

    return check


def _give_up(context: Context) -> None:
    """The reason for the stop is the reason for what was left undone."""
    try:
        context.stop.check()
    except FailedError as error:
        left = f"the outputs could not all be copied in time (the grace period is {context.job.limits.grace_s:g} s)"
        raise FailedError(error.kind, f"{error.detail}; {left}") from error


def keep(context: Context, prefix: str) -> None:
    """Move the output folder to the attempt's folder, complete or not at all."""
    keep_outputs(context, prefix, context.box.home.output)


def keep_outputs(context: Context, prefix: str, folder: Path) -> None:
    target = folder / prefix
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    try:
        shutil.move(os.fspath(context.box.output), temporary)
        remove_tree(target)  # what a pool brought along of a start before this one
        temporary.replace(target)
    except shutil.Error as error:
        raise FailedError("sink_failed", f"the outputs could not be moved to {target}: {error}") from error


def tidy_outputs(context: Context) -> None:
    """Before they are counted: what is left is what leaves."""
    drop_temporaries(context.box.output)
    left_out = settle(context.box.output)
    for sentence in left_out[:_MOST_TOLD]:
        context.notice("sync", sentence)
    if len(left_out) > _MOST_TOLD:
        context.notice("sync", f"{len(left_out) - _MOST_TOLD} more outputs are left out")


def drop_temporaries(folder: Path) -> None:
    """What a program that was killed had not finished writing."""
    for path in [path for path in files_below(folder) if is_temporary(path.name)]:
        with suppress(OSError):
            path.unlink()


class ContinuousSync:
    """Copies finished files while the steps run: those that did not change between two looks.

    A file is copied aside first and sent only if it did not change meanwhile, so that no half-written
    file ever stands at the destination. Errors are told once and tried again at the next look.
    """

    def __init__(self, context: Context, output: Output, look_every_s: float = _LOOK_EVERY_S) -> None:
        self._context, self._output, self._pause = context, output, look_every_s
        self._seen: dict[Path, Version] = {}
        self._sent: dict[Path, Version] = {}
        self._told: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="continuous-sync", daemon=True)

    def __enter__(self) -> ContinuousSync:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for the file that is on its way: landing later, it would replace a newer one."""
        self._done.set()
        hurry = within_grace(self._context)
        while self._thread.is_alive():
            self._thread.join(0.2)
            hurry()

    def _loop(self) -> None:
        while not self._done.wait(self._pause):
            now = self._versions()
            quiet = [p for p, version in now.items() if self._seen.get(p) == version != self._sent.get(p)]
            self._seen = now
            for path in quiet:
                if not self._done.is_set():
                    self._try(path, now[path])

    def _versions(self) -> dict[Path, Version]:
        """Checkpoints have a way of their own."""
        from packtrain.agent.checkpoints.detection import matching

        folder, wanted = self._context.box.output, self._context.job.checkpoint
        apart = {folder / name for name in matching(wanted.path, folder)} if wanted else set()
        found = {}
        for path in files_below(folder):
            with suppress(OSError):  # removed meanwhile, or a link to nowhere
                if path not in apart and not is_temporary(path.name):
                    found[path] = version_of(path)
        return found

    def _try(self, path: Path, version: Version) -> None:
        try:
            self._send(path, version)
        except FileNotFoundError:  # the program removed or renamed it
            pass
        except Exception as error:  # whatever it is, the steps go on and the final sync will tell
            self._tell(str(error))

    def _send(self, path: Path, version: Version) -> None:
        copy = self._context.box.tmp / "continuous-sync"
        shutil.copyfile(path, copy)
        if version_of(path) != version:
            return
        from packtrain.transfer.upload import upload_file

        name = path.relative_to(self._context.box.output).as_posix()
        upload_file(copy, self._output, name, self._context.secrets.reveal)
        self._sent[path] = version

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._context.notice("sync", f"continuous sync will try again: {text}")
