"""Save the state of a training while it runs, and resume exactly from there.

    sampler = ResumableBatchSampler(dataset, batch_size=64, seed=1)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4, generator=torch.Generator())
    ckpt = Checkpoint("checkpoint.pt", model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler)
    start = ckpt.restore()
    step = start.step
    for epoch in range(start.epoch, epochs):
        sampler.set_epoch(epoch)
        for batch, (images, labels) in enumerate(loader, sampler.first_batch + 1):
            …                                        # one training step
            step += 1
            if ckpt.should_save(every_s=60):         # also true when the job must stop
                ckpt.save(epoch=epoch, batch=batch, step=step)
                if ckpt.should_stop():
                    ckpt.exit_for_requeue()          # exit code 85: another attempt resumes from here
        ckpt.save(epoch=epoch + 1, step=step, metrics={"accuracy": test()})
    ckpt.close()

checkpoint_files.py names, writes and reads the files; state_copy.py makes the copy that is written in the background.
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

from packtrain.errors import EXIT_RESUME_IN_PLACE, UsageError
from packtrain.torch.async_writer import AsyncWriter
from packtrain.torch.checkpoint_files import CheckpointFiles, load_first_valid
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
    """The state of a training in one file that is complete at any moment.

    The file holds the model, the optimizer, every other stateful object, and the random number states of Python,
    numpy, torch and CUDA. In a distributed training every process creates a Checkpoint after torch's process group and
    calls the same methods; rank 0 writes the file, which holds the random number states of all ranks.

    Args:
        path: The checkpoint file, relative to $PACKTRAIN_OUTPUT.
        model: The model. Wrappers for distributed training and torch.compile are removed.
        optimizer: The optimizer, if there is one.
        scheduler: The learning rate scheduler, if there is one.
        max_to_keep: Number of checkpoint files to keep: the newest and the ones before it.
        monitor: Name of the metric that decides which checkpoint is the best, written to NAME.best.EXT. Empty: no best
            file.
        mode: Whether the lowest ("min") or the highest ("max") value of that metric is the best.
        **stateful: Other objects to save, each under a name of its own: a gradient scaler, a sampler, a streaming
            loader, a torch.Generator.

    Raises:
        UsageError: `mode` is invalid.
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
        mode: str = "min",
        **stateful: Any,
    ) -> None:
        if mode not in ("min", "max"):
            raise UsageError(f"mode must be 'min' or 'max', not {mode!r}")
        named = {"optimizer": optimizer, "scheduler": scheduler, **stateful}
        self._model = _unwrap_model(model)
        self._stateful = {name: target for name, target in named.items() if target is not None}
        self._monitor, self._mode = monitor, mode
        self._rank_group, self._preemption, self._writer = RankGroup(), PreemptionMonitor(), AsyncWriter()
        self._files = CheckpointFiles(path, max_to_keep)
        self._best_value: float | None = None
        self._state_buffer: StateDict = {}  # the copy of the last save; the next save reuses its memory
        self._max_blocked_s = 0.0
        self._saved_at = time.monotonic()
        if self._rank_group.is_rank_zero:
            self._files.remove_leftovers()

    def restore(self, fallback: str | os.PathLike[str] | None = None) -> TrainingState:
        """Restore everything from the newest valid checkpoint file.

        Tries `path`, then the previous checkpoints, then $PACKTRAIN_RESUME, then `fallback`. Skips damaged files with
        a warning.

        Args:
            fallback: A checkpoint file to use if there is no other, for example one with pre-trained weights.

        Returns:
            Where training resumes; `TrainingState()`, the beginning, if there is no checkpoint.

        Raises:
            CheckpointError: The checkpoint belongs to another model or to other settings.
        """
        loaded = None
        if self._rank_group.is_rank_zero:
            loaded = load_first_valid(self._files.candidates(fallback), self.from_file)
        loaded = self._rank_group.broadcast(loaded)
        if loaded is None:
            return TrainingState()
        path, state = loaded
        try:
            self._load_state_dict(state)
        except Exception as error:
            reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]  # torch lists each layer on a line of its own
            raise CheckpointError(f"{path} does not fit this training: {reason}") from error
        training_state = parse_training_state(state)
        # If the best file was lost with its node, any later checkpoint may replace it.
        self._best_value = training_state.best_value if self._files.best.exists() else None
        return training_state

    def should_save(self, every_s: float = 60.0) -> bool:
        """Return whether to save now. All ranks of a distributed training get the same answer.

        Args:
            every_s: Minimum time between saves, in seconds. A stop request overrides it.

        Returns:
            True if the job must stop, or if the last save is complete and at least `every_s` seconds old.
        """
        return self._rank_group.any_rank(
            self._is_exit_requested() or (self._rank_group.is_rank_zero and self._is_save_due(every_s))
        )

    def save(
        self, *, epoch: int, batch: int = 0, step: int, metrics: Mapping[str, float] | None = None, **extra: Any
    ) -> None:
        """Save everything. Copies the state in memory; a background thread writes it.

        A call while the previous save is still being written waits for it; `should_save` avoids that. If the previous
        save failed, this call warns. Scalars of torch and numpy are converted to numbers.

        Args:
            epoch: The epoch to resume with, counted from 0.
            batch: Number of completed batches of that epoch. A ResumableBatchSampler resumes after them.
            step: Number of completed steps in total.
            metrics: The current metrics. The one named by `monitor` decides whether this checkpoint is the best.
            **extra: Values of your own, returned by `restore` in `TrainingState.extra`.
        """
        rng_states = self._rank_group.all_gather(get_rng_state())
        if self._rank_group.is_rank_zero:
            started_at = time.monotonic()
            self._writer.wait()
            self._warn_if_write_failed()
            numbers = {name: _to_number(value) for name, value in (metrics or {}).items()}
            training_state = TrainingState(int(epoch), int(batch), int(step), self._best_value, numbers, extra)
            self._start_writing(training_state, rng_states)
            self._max_blocked_s = max(self._max_blocked_s, time.monotonic() - started_at)
        self._saved_at = time.monotonic()

    def should_stop(self) -> bool:
        """Return whether to save and exit: on SIGTERM, when the agent asks for it, or when the time limit is near."""
        return self._rank_group.any_rank(self._is_exit_requested())

    def exit_for_requeue(self) -> NoReturn:
        """Wait until the last save is on disk, then exit with code 85, so that another attempt resumes from it."""
        self.close()
        self._rank_group.any_rank(False)  # no rank exits before rank 0 has written
        sys.exit(EXIT_RESUME_IN_PLACE)

    def close(self) -> None:
        """Wait until the last save is on disk.

        Raises:
            CheckpointError: The last save failed.
        """
        self._writer.wait()
        self._preemption.close()
        if self._writer.error is not None:
            raise CheckpointError(self._write_error_message()) from self._writer.error

    def to_file(self, state: StateDict) -> StateDict:
        """Return the content of the file. Override it, with `from_file`, to share checkpoints with another program.

        Args:
            state: `{"model": STATE_DICT, "packtrain": {"training_state": {"epoch": …, …}, …}}`
        """
        return state

    def from_file(self, content: StateDict) -> StateDict:
        """Return the state that a file holds: what was given to `to_file`, or a part of it with these keys.

        Args:
            content: The content of the file.
        """
        return content

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except CheckpointError as error:
            if exc_type is None:
                raise
            warnings.warn(str(error), stacklevel=2)  # the first error matters more

    def _is_exit_requested(self) -> bool:
        return self._preemption.is_stop_requested(self._max_blocked_s + self._writer.max_write_s)

    def _is_save_due(self, every_s: float) -> bool:
        return not self._writer.is_busy and time.monotonic() - self._saved_at >= every_s

    def _start_writing(self, training_state: TrainingState, rng_states: list[StateDict]) -> None:
        is_best = self._is_best(training_state)
        if is_best:
            self._best_value = float(training_state.metrics[self._monitor])
        training_state = replace(training_state, best_value=self._best_value)
        content = self.to_file(self._build_state_dict(training_state, rng_states))
        self._state_buffer = state = copy_state(content, self._state_buffer)

        def write() -> None:
            self._files.write(state, is_best)
            self._files.notify_agent(training_state.step, training_state.epoch)

        self._writer.start(write)

    def _is_best(self, training_state: TrainingState) -> bool:
        value = training_state.metrics.get(self._monitor) if self._monitor else None
        if value is None or not math.isfinite(value):
            return False
        return self._best_value is None or (
            value < self._best_value if self._mode == "min" else value > self._best_value
        )

    def _build_state_dict(self, training_state: TrainingState, rng_states: list[StateDict]) -> StateDict:
        packtrain_state = {
            "version": CHECKPOINT_VERSION,
            "training_state": training_state.to_dict(),
            "rng_states": rng_states,
            "stateful": {name: _get_state(target, training_state) for name, target in self._stateful.items()},
        }
        return {"model": self._model.state_dict(), PACKTRAIN_KEY: packtrain_state}

    def _load_state_dict(self, state: StateDict) -> None:
        self._model.load_state_dict(model_state_dict(state))
        saved, rng_states = state[PACKTRAIN_KEY].get("stateful", {}), state[PACKTRAIN_KEY].get("rng_states", [])
        for name in self._stateful.keys() & saved.keys():
            _load_state(self._stateful[name], saved[name])
        missing = [name for name in self._stateful if name not in saved]
        if missing:
            warnings.warn(
                f"the checkpoint has no state of {', '.join(missing)}: they start from their initial state",
                stacklevel=3,
            )
        if self._rank_group.rank < len(rng_states):
            set_rng_state(rng_states[self._rank_group.rank])

    def _write_error_message(self) -> str:
        return f"the checkpoint {self._files.latest} could not be written: {self._writer.error}"

    def _warn_if_write_failed(self) -> None:
        if self._writer.error is not None:
            warnings.warn(f"{self._write_error_message()}; training continues without it", stacklevel=3)


def _unwrap_model(model: Any) -> Any:
    """Return the user's model without the wrappers of distributed training and torch.compile."""
    from torch import nn

    while isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)) or hasattr(model, "_orig_mod"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


def _to_number(value: Any) -> Any:
    """Return a plain number. A torch scalar may hold a graph or be on a GPU."""
    return value.item() if hasattr(value, "item") else value


def _get_state(target: Any, training_state: TrainingState) -> Any:
    if not hasattr(target, "state_dict"):
        return target.get_state()  # a torch.Generator
    state = target.state_dict()
    from packtrain.torch.sampler import ResumableBatchSampler

    if isinstance(target, ResumableBatchSampler):  # workers draw batches before the training receives them
        state.update(epoch=training_state.epoch, batch=training_state.batch)
    return state


def _load_state(target: Any, state: Any) -> None:
    if state == {}:  # a gradient scaler that was disabled on a node without a GPU keeps its initial state
        return
    if hasattr(target, "load_state_dict"):
        target.load_state_dict(restore_types(state, target.state_dict()))
    else:
        target.set_state(state)
