"""Steps in the background, and the level that they belong to."""

from __future__ import annotations

import threading
from functools import partial
from typing import Callable

from packtrain.agent.parallel import run_together
from packtrain.agent.steps.exit_status import StepError
from packtrain.agent.steps.processes import Family, Processes
from packtrain.errors import FailedError


class Launched:
    """The steps of one `launch`, in a thread of their own."""

    def __init__(self, signal_at_exit: int, family: Family, body: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._signal, self._family, self._body = signal_at_exit, family, body
        self._thread = threading.Thread(target=self._run, name="launch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._body()
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        self._thread.join()

    def end(self, processes: Processes) -> None:
        """The level above has ended."""
        if self._signal and self._thread.is_alive():
            processes.end(self._family, self._signal)
        self._thread.join()


class Level:
    """The launched steps of one level, by handle. When the level ends, so do they."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._launched: list[Launched] = []
        self._handles: dict[str, Launched] = {}

    def add(self, handle: str, launched: Launched) -> None:
        self._launched.append(launched)
        if handle:
            self._handles[handle] = launched

    def await_handle(self, handle: str, path: str) -> None:
        """Raises StepError if its steps failed. A launch that was skipped has nothing to wait for."""
        launched = self._handles.get(handle)
        if launched is None:
            return
        launched.wait()
        if launched.error is not None:
            code = launched.error.status if isinstance(launched.error, StepError) else 1
            kind = launched.error.kind if isinstance(launched.error, FailedError) else "internal"
            raise StepError(kind, f'step "{path}" depends on "{handle}", which failed: {launched.error}', code)

    def end(self) -> None:
        run_together([partial(launched.end, self._processes) for launched in self._launched])
