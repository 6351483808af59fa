"""Checkpoints while the steps run: noticed, set aside, carried away, each complete or invisible.

One thread notices, another carries, so that neither a slow sink nor a large file holds up the training or the notice
of a newer save. `carrying` decides what is done next, `porter` does it, `saves` looks at the disk, `shelf` speaks with
the sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable

from packtrain.agent.checkpoints.detection import Announcement, Announcements, Aside, Quiet
from packtrain.agent.checkpoints.record import KEPT, Record
from packtrain.agent.checkpoints.store import RecordRefusedError, place_of, shelf_of
from packtrain.agent.checkpoints.upload_executor import BehindError, ChangedError, Porter
from packtrain.agent.checkpoints.upload_planner import Act, Carrying, Drop, Save, Seal
from packtrain.agent.context import Context
from packtrain.agent.file_versions import Version
from packtrain.agent.outputs.sync import within_grace
from packtrain.agent.steps.exit_status import has_left
from packtrain.errors import FailedError
from packtrain.events import kinds
from packtrain.plan import Checkpoint, Output

_GLANCE_S = 0.2  # between two looks for announcements
_LOOK_EVERY_S = 5.0  # and for files that nobody announced

StepNow = Callable[[], "int | None"]
"""The newest training step that the program reported."""


class _OverError(Exception):
    """The attempt no longer wants what is being sent."""


def checkpoints_of(context: Context, step_now: StepNow) -> Checkpoints | None:
    """None if the workflow names no checkpoint, or there is no place to carry it to."""
    wanted, place = context.job.checkpoint, place_of(context)
    if wanted is None or place is None:
        return None
    return Checkpoints(context, place, wanted, step_now)


class Checkpoints:
    """`with Checkpoints(…): run the steps`. When they end well the rest is dropped, since the outputs follow; when
    they do not, the newest save is carried away, as long as the patience and the grace period allow."""

    def __init__(
        self,
        context: Context,
        output: Output,
        wanted: Checkpoint,
        step_now: StepNow,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        box, carried = context.box, context.carried is not None
        self._context, self._output, self._step_now, self._look_every_s = context, output, step_now, look_every_s
        self._shelf = shelf_of(context, output)
        self._porter = Porter(self._shelf, box.aside / "record.json", self._check)
        # In a folder that the engine carries, `every` is for the carrying, and each generation too many is carried.
        every_s, kept = (None, 1) if carried else (wanted.every_s, KEPT)
        self._carrying = Carrying(every_s, one_address=not self._shelf.lists, kept=kept)
        self._announcements = Announcements(box.checkpoints)
        self._announces = False
        self._quiet = Quiet(wanted.path, box.output, context.saved.versions)
        self._aside = Aside(box.output, box.aside)
        self._step = context.saved.start_step
        self._told: set[str] = set()
        self._others_dropped = False
        self._changed = threading.Condition()
        self._over, self._ending, self._cancelled = threading.Event(), False, False
        self._failing_since: float | None = None
        self.trouble: Exception | None = None  # why the newest save did not get there
        self._noticer = threading.Thread(target=self._notice_all, name="checkpoints", daemon=True)
        self._carrier = threading.Thread(target=self._carry_all, name="checkpoint-carrier", daemon=True)

    def __enter__(self) -> Checkpoints:
        self._noticer.start()
        self._carrier.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set()
        self._noticer.join()
        if error is None:
            self._cancelled = True
        else:
            self._notice_last(0.0 if has_left(error) else self._look_every_s)
        self._settle()
        self._tell_ignored()

    @property
    def furthest(self) -> int | None:
        """The highest training step that stands complete at the destination, of this attempt."""
        return self._carrying.furthest

    # Noticing

    def _notice_all(self) -> None:
        look_at = time.monotonic() + self._look_every_s
        while not self._over.wait(_GLANCE_S):
            self._try_to_notice(self._notice_announced)
            if time.monotonic() >= look_at:
                self._try_to_notice(lambda: self._take_quiet(self._quiet.look()))
                look_at = time.monotonic() + self._look_every_s

    def _notice_last(self, rested_s: float) -> None:
        """No step runs any more."""
        self._try_to_notice(self._notice_announced)
        self._try_to_notice(lambda: self._take_quiet(self._quiet.last_look(rested_s)))

    def _try_to_notice(self, notice: Callable[[], None]) -> None:
        try:
            notice()
        except Exception as error:  # a full disk, say: the training goes on
            self._tell(error, "a checkpoint could not be set aside", "the training goes on")

    def _notice_announced(self) -> None:
        said = self._announcements.read()
        self._announces |= bool(said)
        for one in reversed(said):  # the newest that is still there
            save = self._aside.announced(one)
            if save is not None:
                self._offer(save)
                return
            self._tell(_missing(one), "a checkpoint was announced in vain", "the training goes on")

    def _take_quiet(self, fresh: Mapping[str, Version]) -> None:
        """Of programs that announce nothing."""
        save = self._aside.quiet(fresh, self._next_step()) if fresh and not self._announces else None
        if save is not None:
            self._quiet.take(fresh)
            self._offer(save)

    def _next_step(self) -> int:
        reported = self._step_now()
        return reported if reported is not None and reported > self._step else self._step + 1

    def _offer(self, save: Save) -> None:
        self._step = self._context.saved.reached = max(self._step, save.step)
        with self._changed:
            self._carrying.offer(save)
            self._changed.notify_all()
        self._sweep()  # now: while the sink is in trouble the carrier sleeps, and the disk fills

    # Carrying

    def _carry_all(self) -> None:
        while True:
            act = self._await_act()
            if act is None:
                return
            self._perform(act)
            self._sweep()

    def _await_act(self) -> Act | None:
        """The next thing to do, once its time has come; None when the attempt ends and nothing is left."""
        with self._changed:
            if not self._ending and self._carrying.pause_s:
                self._changed.wait_for(lambda: self._ending, self._carrying.pause_s)
            elif self._carrying.pause_s:
                self._changed.wait(min(1.0, self._carrying.pause_s))
            while True:
                if self._cancelled:
                    self._carrying.forget()
                act = self._carrying.next(time.monotonic())
                if act is not None or (self._ending and self._carrying.idle):
                    return act
                self._changed.wait(_GLANCE_S)

    def _perform(self, act: Act) -> None:
        try:
            record = self._porter.do(act)
            if record is not None and isinstance(act, Seal):
                self._tell_saved(record, act.save)
                self._drop_others()
        except _OverError:
            with self._changed:
                self._carrying.forget()
        except Exception as error:  # whatever it is, the training goes on
            self._note(error, act, self._carrying.spoilt if _is_final(error) else self._carrying.failed)
        else:
            with self._changed:
                self._carrying.done(act)
                self._failing_since = self.trouble = None

    def _note(self, error: Exception, act: Act, verdict: Callable[[Act], None]) -> None:
        with self._changed:
            verdict(act)
            if isinstance(act, Drop):  # what is too old may stay a little longer
                return
            self.trouble = error
            self._failing_since = self._failing_since or time.monotonic()
        further = "the training goes on" if _is_final(error) else "it is tried again, and the training goes on"
        which = f"the checkpoint of step {act.save.step}"
        if isinstance(error, RecordRefusedError):
            self._tell(error, f"{which} is shown, but nobody can go on from it", further)
        else:
            self._tell(error, f"{which} could not be carried away", further)

    def _tell_saved(self, record: Record, save: Save) -> None:
        seconds = time.monotonic() - save.noticed
        self._context.saved.sync_s = seconds
        if record.step > self._context.saved.start_step:
            self._context.saved.sealed_at = time.monotonic()
        self._context.saved.carried = dict(zip(save.names, save.versions))
        self._context.journal.emit(
            kinds.CHECKPOINT_SAVED,
            generation=record.generation,
            step=record.step,
            epoch=record.epoch,
            path=record.path,
            bytes=record.bytes,
            seconds=round(seconds, 3),
            sha256=record.files[0].sha256 if len(record.files) == 1 else "",
        )

    def _drop_others(self) -> None:
        """Earlier starts', where nobody else needs them."""
        if self._context.carried is None or self._others_dropped:
            return
        self._others_dropped = True
        try:
            self._shelf.drop_others()
        except FailedError as error:
            self._context.log.line(f"steps: older checkpoints could not be removed: {error}")

    def _check(self) -> None:
        if self._cancelled:
            raise _OverError

    def _sweep(self) -> None:
        with self._changed:
            litter, self._carrying.litter = self._carrying.litter, []
        for save in litter:
            self._aside.remove(save)
            self._porter.forget(save)

    def _tell(self, error: Exception, what: str, further: str) -> None:
        """Once for each kind of trouble; the rest is in the agent's log."""
        kind = error.kind if isinstance(error, FailedError) else type(error).__name__
        if kind in self._told:
            self._context.log.line(f"steps: {what}: {error}")
            return
        self._told.add(kind)
        try:
            self._context.notice("steps", f"{what}: {error}; {further}")
        except OSError as full:
            self._context.log.line(f"steps: no notice could be written: {full}")

    # The end

    def _settle(self) -> None:
        """Wait for the carrier, but not for ever."""
        with self._changed:
            self._ending = True
            self._carrying.hurry()
            self._failing_since = None
            self._changed.notify_all()
        over = self._patience()
        while self._carrier.is_alive():
            self._carrier.join(0.05)
            if over():
                self._cancelled = True
                return

    def _patience(self) -> Callable[[], bool]:
        given = self._output.patience_s
        patience_s = self._context.job.patience_s if given is None else given
        hurry = within_grace(self._context)

        def over() -> bool:
            since = self._failing_since
            try:
                hurry()
            except FailedError as error:
                self.trouble = self.trouble or error
                return True
            return since is not None and time.monotonic() - since > patience_s

        return over

    def _tell_ignored(self) -> None:
        if self._announcements.ignored:
            text = f"{self._announcements.ignored} lines of $PACKTRAIN_CHECKPOINTS are no announcements"
            self._context.log.line(f"steps: {text}")


def _is_final(error: Exception) -> bool:
    """Whether it is in vain to try this one again."""
    unsupported = isinstance(error, FailedError) and error.kind == "unsupported"
    return unsupported or isinstance(error, (ChangedError, BehindError, RecordRefusedError, FileNotFoundError))


def _missing(one: Announcement) -> FailedError:
    return FailedError("object_missing", f"there is no file {one.path!r} below the output folder")
