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

from packtrain.errors import EXIT_RESUME_IN_PLACE
from packtrain.torch.async_writer import AsyncWriter
from packtrain.torch.checkpoint_files import CheckpointFiles
from packtrain.torch.checkpoint_reader import load_first_valid
from packtrain.torch.distributed import RankGroup
from packtrain.torch.preemption import PreemptionMonitor
from packtrain.torch.rng_state import get_rng_state, set_rng_state
from packtrain.torch.state_copy import copy_state, restore_types
from packtrain.torch.training_state import (
    CHECKPOINT_VERSION,
    PACKTRAIN_KEY,
    CheckpointError,
    StateDict,
    TrainingState,
    model_state_dict,
    parse_training_state,
)

_MAX_REASON_CHARS = 500


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
        max_to_keep: int = 2,
        monitor: str = "",
        deepsquare: bool = False,
        **stateful: Any,
    ) -> None:
        named = {"optimizer": optimizer, "scheduler": scheduler, **stateful}
        self._model = _unwrap_model(model)
        self._stateful = {name: part for name, part in named.items() if part is not None}
        self._monitor, self._deepsquare = monitor, deepsquare
        self._rank_group, self._preemption, self._writer = RankGroup(), PreemptionMonitor(), AsyncWriter()
        self._files = CheckpointFiles(path, max_to_keep)
        self._best_value: float | None = None
        self._state_buffer: StateDict = {}  # of the last save, used again by the next
        self._max_blocked_s = 0.0
        self._saved_at = time.monotonic()
        if self._rank_group.is_rank_zero:
            self._files.remove_leftovers()

    def restore(self, fallback: str | os.PathLike[str] | None = None) -> TrainingState:
        """Restore everything from the newest whole file, and say where to go on; Position() if there is none.

        Looks at `path` and the ones kept, then at $PACKTRAIN_RESUME, then at `also`. Damaged files are warned about and
        passed over. Raises CheckpointError if the file is of another model or other settings.
        """
        found = load_first_valid(self._files.candidates(fallback)) if self._rank_group.is_rank_zero else None
        found = self._rank_group.broadcast(found)
        if found is None:
            return TrainingState()
        path, state = found
        try:
            self._load_state_dict(state)
        except Exception as error:
            words = " ".join(str(error).split())[:_MAX_REASON_CHARS]  # torch tells of each layer on a line of its own
            raise CheckpointError(f"{path} does not fit this training: {words}") from error
        position = parse_training_state(state)
        # If the best file was lost with its machine, the best from here on is better than none.
        self._best_value = position.best_value if self._files.best.exists() else None
        return position

    def should_save(self, every_s: float = 60.0) -> bool:
        """Whether to save now: it is time to leave, or the last save is written and `every_s` seconds old.

        In a distributed training all processes get the same answer.
        """
        return self._rank_group.any_rank(
            self._is_exit_requested() or (self._rank_group.is_rank_zero and self._is_save_due(every_s))
        )

    def save(
        self, *, epoch: int, batch: int = 0, step: int, metrics: Mapping[str, float] | None = None, **extra: Any
    ) -> None:
        """Save everything; go on with batch `batch` (counted from 0) of `epoch`, after `step` steps.

        Only copies in memory: a thread writes. A save that comes while the one before is still being written waits for
        it; `due` avoids that. If that one failed, this call warns. Scalars of torch and numpy are welcome, as in
        `report`. `extra` are values of your own, see Position.
        """
        everybody = self._rank_group.all_gather(get_rng_state())
        if self._rank_group.is_rank_zero:
            began = time.monotonic()
            self._writer.wait()
            self._warn_if_write_failed()
            numbers = {name: _to_number(value) for name, value in (metrics or {}).items()}
            position = TrainingState(int(epoch), int(batch), int(step), self._best_value, numbers, extra)
            self._start_writing(position, everybody)
            self._max_blocked_s = max(self._max_blocked_s, time.monotonic() - began)
        self._saved_at = time.monotonic()

    def should_stop(self) -> bool:
        """Whether to save and leave: SIGTERM came, the agent asks for it, or the time limit is near."""
        return self._rank_group.any_rank(self._is_exit_requested())

    def exit_for_requeue(self) -> NoReturn:
        """Wait until the last save is on the disk, then exit with the code for "another attempt goes on from here"."""
        self.close()
        self._rank_group.any_rank(False)  # nobody goes before rank 0 has written
        sys.exit(EXIT_RESUME_IN_PLACE)

    def close(self) -> None:
        """Wait until the last save is on the disk. Raises CheckpointError if it did not get there."""
        self._writer.wait()
        self._preemption.close()
        if self._writer.error is not None:
            raise CheckpointError(self._write_error_message()) from self._writer.error

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        try:
            self.close()
        except CheckpointError as error:
            if exc_type is None:
                raise
            warnings.warn(str(error), stacklevel=2)  # what went wrong first is more interesting

    def _is_exit_requested(self) -> bool:
        return self._preemption.is_stop_requested(self._max_blocked_s + self._writer.max_write_s)

    def _is_save_due(self, every_s: float) -> bool:
        return not self._writer.is_busy and time.monotonic() - self._saved_at >= every_s

    def _start_writing(self, training_state: TrainingState, rng_states: list[StateDict]) -> None:
        is_best = self._is_best(training_state)
        if is_best:
            self._best_value = float(training_state.metrics[self._monitor.lstrip("-")])
        training_state = replace(training_state, best_value=self._best_value)
        self._state_buffer = state = copy_state(self._build_state_dict(training_state, rng_states), self._state_buffer)

        def write() -> None:
            self._files.write(state, is_best)
            self._files.notify_agent(training_state.step, training_state.epoch)

        self._writer.start(write)

    def _is_best(self, training_state: TrainingState) -> bool:
        value = training_state.metrics.get(self._monitor.lstrip("-")) if self._monitor else None
        if value is None or not math.isfinite(value):
            return False
        lower = self._monitor.startswith("-")
        return self._best_value is None or (value < self._best_value if lower else value > self._best_value)

    def _build_state_dict(self, training_state: TrainingState, rng_states: list[StateDict]) -> StateDict:
        ours = {"version": CHECKPOINT_VERSION, "position": training_state.to_dict(), "random": rng_states, "parts": {}}
        ours["parts"] = {name: _get_state(part) for name, part in self._stateful.items()}
        if not self._deepsquare:
            return {"model": self._model.state_dict(), PACKTRAIN_KEY: ours}
        accuracy = 100 * float(training_state.metrics.get("accuracy", training_state.best_value or 0.0))
        return {
            "net": self._model.state_dict(),
            "acc": accuracy,
            "epoch": training_state.epoch - 2,
            PACKTRAIN_KEY: ours,
        }

    def _load_state_dict(self, state: StateDict) -> None:
        self._model.load_state_dict(model_state_dict(state))
        ours = state.get(PACKTRAIN_KEY, {"parts": {}, "random": []})
        for name in self._stateful.keys() & ours["parts"].keys():
            _load_state(self._stateful[name], ours["parts"][name])
        missing = [name for name in self._stateful if name not in ours["parts"]]
        if missing:
            warnings.warn(f"the checkpoint has no state of {', '.join(missing)}: fresh ones are used", stacklevel=3)
        if self._rank_group.rank < len(ours["random"]):
            set_rng_state(ours["random"][self._rank_group.rank])

    def _write_error_message(self) -> str:
        return f"the checkpoint {self._files.latest} could not be written: {self._writer.error}"

    def _warn_if_write_failed(self) -> None:
        if self._writer.error is not None:
            warnings.warn(f"{self._write_error_message()}; training goes on without it", stacklevel=3)


def _unwrap_model(model: Any) -> Any:
    """The model that the program wrote, inside of what makes it distributed or compiled."""
    from torch import nn

    while isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)) or hasattr(model, "_orig_mod"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


def _to_number(value: Any) -> Any:
    """A scalar of torch may have a graph, and lie on a GPU."""
    return value.item() if hasattr(value, "item") else value


def _get_state(target: Any) -> Any:
    return target.state_dict() if hasattr(target, "state_dict") else target.get_state()  # the latter: a torch.Generator


def _load_state(target: Any, state: Any) -> None:
    if state == {}:  # of a scaler that was switched off, on a machine without a GPU: it starts afresh on one that has
        return
    if hasattr(target, "load_state_dict"):
        target.load_state_dict(restore_types(state, target.state_dict()))
    else:
        target.set_state(state)
