"""Steps in the background, and the level that they belong to."""

from __future__ import annotations

import threading
from functools import partial
from typing import Callable

from packtrain.agent.parallel import run_parallel
from packtrain.agent.steps.exit_status import StepError
from packtrain.agent.steps.processes import ProcessTable, ProcessTree
from packtrain.errors import FailedError


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
        """The level above has ended."""
        if self._signal_at_exit and self._thread.is_alive():
            processes.terminate(self._process_tree, self._signal_at_exit)
        self._thread.join()


class StepLevel:
    """The launched steps of one level, by handle. When the level ends, so do they."""

    def __init__(self, processes: ProcessTable) -> None:
        self._processes = processes
        self._background_steps: list[BackgroundSteps] = []
        self._handles: dict[str, BackgroundSteps] = {}

    def add(self, handle: str, steps: BackgroundSteps) -> None:
        self._background_steps.append(steps)
        if handle:
            self._handles[handle] = steps

    def wait_for_handle(self, handle: str, path: str) -> None:
        """Raises StepError if its steps failed. A launch that was skipped has nothing to wait for."""
        launched = self._handles.get(handle)
        if launched is None:
            return
        launched.wait()
        if launched.error is not None:
            code = launched.error.status if isinstance(launched.error, StepError) else 1
            kind = launched.error.kind if isinstance(launched.error, FailedError) else "internal"
            raise StepError(kind, f'step "{path}" depends on "{handle}", which failed: {launched.error}', code)

    def stop(self) -> None:
        run_parallel([partial(launched.stop, self._processes) for launched in self._background_steps])
