"""Launched steps, which run in the background, and the level they belong to."""

from __future__ import annotations

import threading
from functools import partial
from typing import Callable

from packtrain.agent.processes.exit_status import StepError
from packtrain.agent.processes.process_table import ProcessTable, ProcessTree
from packtrain.errors import FailedError
from packtrain.transfer.tasks.parallel import run_parallel


class BackgroundSteps:
    """The steps of one `launch`, in a thread of their own."""

    def __init__(self, signal_at_exit: int, process_tree: ProcessTree, body: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._signal_at_exit, self._process_tree, self._body = signal_at_exit, process_tree, body
        self._thread = threading.Thread(target=self._run, name="launch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._body()
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        self._thread.join()

    def stop(self, processes: ProcessTable) -> None:
        """Terminate the steps, because the surrounding level has ended, and wait for them."""
        if self._signal_at_exit and self._thread.is_alive():
            processes.terminate(self._process_tree, self._signal_at_exit)
        self._thread.join()


class StepLevel:
    """The launched steps of one level, by handle. They end with the level."""

    def __init__(self, processes: ProcessTable) -> None:
        self._processes = processes
        self._background_steps: list[BackgroundSteps] = []
        self._handles: dict[str, BackgroundSteps] = {}

    def add(self, handle: str, steps: BackgroundSteps) -> None:
        self._background_steps.append(steps)
        if handle:
            self._handles[handle] = steps

    def wait_for_handle(self, handle: str, path: str) -> None:
        """Wait for the launched steps with this handle. Raises StepError if they failed.

        Args:
            handle: Handle of the launch. If the launch was skipped, the call returns at once.
            path: Path of the step that waits.
        """
        steps = self._handles.get(handle)
        if steps is None:
            return
        steps.wait()
        if steps.error is not None:
            status = steps.error.status if isinstance(steps.error, StepError) else 1
            kind = steps.error.kind if isinstance(steps.error, FailedError) else "internal"
            raise StepError(kind, f'step "{path}" depends on "{handle}", which failed: {steps.error}', status)

    def stop(self) -> None:
        run_parallel([partial(steps.stop, self._processes) for steps in self._background_steps])
