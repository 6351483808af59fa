"""Saves a training while it runs, and goes on with it exactly where it was.

    ckpt = Checkpoint("checkpoint.pt", model=model, optimizer=optimizer, scheduler=scheduler, order=order)
    start = ckpt.resume()
    step = start.step
    for epoch in range(start.epoch, epochs + 1):
        first = start.batch if epoch == start.epoch else 0
        for batch, chosen in enumerate(order.batches(epoch, first), first + 1):
            …                                        # one step of training
            step += 1
            if ckpt.due(every_s=60):                 # also when it is time to leave
                ckpt.save(epoch=epoch, batch=batch, step=step)
                if ckpt.should_stop():
                    ckpt.leave()                     # exit code 85: another attempt goes on from here
        ckpt.save(epoch=epoch + 1, step=step, metrics={"accuracy": test()})
    ckpt.close()

files.py has the names on the disk, snapshot.py the copy that is written while training goes on.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from packtrain.errors import EXIT_CONTINUE_HERE
from packtrain.torch.async_writer import Writer
from packtrain.torch.checkpoint_files import CheckpointFiles
from packtrain.torch.checkpoint_reader import first_whole
from packtrain.torch.distributed import Ranks
from packtrain.torch.preemption import Stopping
from packtrain.torch.rng_state import random_state, restore_random_state
from packtrain.torch.state_copy import as_it_was, copied
from packtrain.torch.training_state import OURS, VERSION, CheckpointError, Position, State, model_in, position_in

_LONGEST_REASON = 500


class Checkpoint:
    """Model, optimizer and whatever else has a state, in one file that is complete at every moment.

    `path` lies below $PACKTRAIN_OUTPUT. Beside the newest the `keep - 1` before it are kept, and the `best` by a metric
    (`"accuracy"`: the higher the better; `"-loss"`: the lower). Any other part with a state (a scaler, an Order, a
    torch.Generator) is given by a name of its own. With `deepsquare` the file can also be read by DeepSquare's program
    (`net`, `acc`, `epoch`), whose files can always be read.
    In a distributed training every process makes one, after torch's process group, and calls the same methods; rank 0
    writes. Python's, numpy's, torch's and CUDA's random state are part of it, of every process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        model: Any,
        optimizer: Any = None,
        scheduler: Any = None,
        keep: int = 2,
        best: str = "",
        deepsquare: bool = False,
        **parts: Any,
    ) -> None:
        named = {"optimizer": optimizer, "scheduler": scheduler, **parts}
        self._model = _unwrapped(model)
        self._parts = {name: part for name, part in named.items() if part is not None}
        self._metric, self._deepsquare = best, deepsquare
        self._ranks, self._stopping, self._writer = Ranks(), Stopping(), Writer()
        self._files = CheckpointFiles(path, keep)
        self._best: float | None = None
        self._memory: State = {}  # of the last save, used again by the next
        self._blocked_s = 0.0
        self._saved_at = time.monotonic()
        if self._ranks.first:
            self._files.remove_leftovers()

    def resume(self, also: str | os.PathLike[str] | None = None) -> Position:
        """Restore everything from the newest whole file, and say where to go on; Position() if there is none.

        Looks at `path` and the ones kept, then at $PACKTRAIN_RESUME, then at `also`. Damaged files are warned about and
        passed over. Raises CheckpointError if the file is of another model or other settings.
        """
        found = first_whole(self._files.candidates(also)) if self._ranks.first else None
        found = self._ranks.from_first(found)
        if found is None:
            return Position()
        path, state = found
        try:
            self._restore(state)
        except Exception as error:
            words = " ".join(str(error).split())[:_LONGEST_REASON]  # torch tells of each layer on a line of its own
            raise CheckpointError(f"{path} does not fit this training: {words}") from error
        position = position_in(state)
        # If the best file was lost with its machine, the best from here on is better than none.
        self._best = position.best if self._files.best.exists() else None
        return position

    def due(self, every_s: float = 60.0) -> bool:
        """Whether to save now: it is time to leave, or the last save is written and `every_s` seconds old.

        In a distributed training all processes get the same answer.
        """
        return self._ranks.any(self._must_leave() or (self._ranks.first and self._is_time(every_s)))

    def save(
        self, *, epoch: int, batch: int = 0, step: int, metrics: Mapping[str, float] | None = None, **extra: Any
    ) -> None:
        """Save everything; go on with batch `batch` (counted from 0) of `epoch`, after `step` steps.

        Only copies in memory: a thread writes. A save that comes while the one before is still being written waits for
        it; `due` avoids that. If that one failed, this call warns. Scalars of torch and numpy are welcome, as in
        `report`. `extra` are values of your own, see Position.
        """
        everybody = self._ranks.gathered(random_state())
        if self._ranks.first:
            began = time.monotonic()
            self._writer.wait()
            self._warn_of_failure()
            numbers = {name: _number(value) for name, value in (metrics or {}).items()}
            position = Position(int(epoch), int(batch), int(step), self._best, numbers, extra)
            self._start_writing(position, everybody)
            self._blocked_s = max(self._blocked_s, time.monotonic() - began)
        self._saved_at = time.monotonic()

    def should_stop(self) -> bool:
        """Whether to save and leave: SIGTERM came, the agent asks for it, or the time limit is near."""
        return self._ranks.any(self._must_leave())

    def leave(self) -> NoReturn:
        """Wait until the last save is on the disk, then exit with the code for "another attempt goes on from here"."""
        self.close()
        self._ranks.any(False)  # nobody goes before rank 0 has written
        sys.exit(EXIT_CONTINUE_HERE)

    def close(self) -> None:
        """Wait until the last save is on the disk. Raises CheckpointError if it did not get there."""
        self._writer.wait()
        self._stopping.close()
        if self._writer.error is not None:
            raise CheckpointError(self._failure()) from self._writer.error

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.close()
        except CheckpointError as error:
            if kind is None:
                raise
            warnings.warn(str(error), stacklevel=2)  # what went wrong first is more interesting

    def _must_leave(self) -> bool:
        return self._stopping.asked(self._blocked_s + self._writer.longest_s)

    def _is_time(self, every_s: float) -> bool:
        return not self._writer.busy and time.monotonic() - self._saved_at >= every_s

    def _start_writing(self, position: Position, randomness: list[State]) -> None:
        is_best = self._is_best(position)
        if is_best:
            self._best = float(position.metrics[self._metric.lstrip("-")])
        position = replace(position, best=self._best)
        self._memory = state = copied(self._state(position, randomness), self._memory)

        def write() -> None:
            self._files.write(state, is_best)
            self._files.announce(position.step, position.epoch)

        self._writer.start(write)

    def _is_best(self, position: Position) -> bool:
        value = position.metrics.get(self._metric.lstrip("-")) if self._metric else None
        if value is None or not math.isfinite(value):
            return False
        lower = self._metric.startswith("-")
        return self._best is None or (value < self._best if lower else value > self._best)

    def _state(self, position: Position, randomness: list[State]) -> State:
        ours = {"version": VERSION, "position": position.state(), "random": randomness, "parts": {}}
        ours["parts"] = {name: _state_of(part) for name, part in self._parts.items()}
        if not self._deepsquare:
            return {"model": self._model.state_dict(), OURS: ours}
        accuracy = 100 * float(position.metrics.get("accuracy", position.best or 0.0))
        return {"net": self._model.state_dict(), "acc": accuracy, "epoch": position.epoch - 2, OURS: ours}

    def _restore(self, state: State) -> None:
        self._model.load_state_dict(model_in(state))
        ours = state.get(OURS, {"parts": {}, "random": []})
        for name in self._parts.keys() & ours["parts"].keys():
            _restore_part(self._parts[name], ours["parts"][name])
        missing = [name for name in self._parts if name not in ours["parts"]]
        if missing:
            warnings.warn(f"the checkpoint has no state of {', '.join(missing)}: fresh ones are used", stacklevel=3)
        if self._ranks.rank < len(ours["random"]):
            restore_random_state(ours["random"][self._ranks.rank])

    def _failure(self) -> str:
        return f"the checkpoint {self._files.newest} could not be written: {self._writer.error}"

    def _warn_of_failure(self) -> None:
        if self._writer.error is not None:
            warnings.warn(f"{self._failure()}; training goes on without it", stacklevel=3)


def _unwrapped(model: Any) -> Any:
    """The model that the program wrote, inside of what makes it distributed or compiled."""
    from torch import nn

    while isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)) or hasattr(model, "_orig_mod"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


def _number(value: Any) -> Any:
    """A scalar of torch may have a graph, and lie on a GPU."""
    return value.item() if hasattr(value, "item") else value


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part.get_state()  # the latter: a torch.Generator


def _restore_part(part: Any, state: Any) -> None:
    if state == {}:  # of a scaler that was switched off, on a machine without a GPU: it starts afresh on one that has
        return
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(as_it_was(state, part.state_dict()))
    else:
        part.set_state(state)
