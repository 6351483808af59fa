"""An engine in a process that runs as an ordinary user of a pool or cluster."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packtrain.plan import RunFolder
from tests.support.engine_server import __file__ as SERVER


class RemoteEngine:
    """Passes every call to an engine in another process.

    Args:
        user_command: Returns a command that runs another one as the user.
        env: The user's environment.
        folder: The folder of the run; its plan says which engine it is.
    """

    def __init__(
        self, user_command: Callable[[Sequence[str]], list[str]], env: Mapping[str, str], folder: RunFolder
    ) -> None:
        argv = user_command([sys.executable, SERVER, str(folder.root)])
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            pickle.dump((name, arguments), self._process.stdin)
            self._process.stdin.flush()
            is_ok, result = pickle.load(self._process.stdout)
            assert is_ok, result
            return result

        return call

    def close(self) -> None:
        """End the process and wait for it."""
        self._process.stdin.close()
        self._process.wait(30)
