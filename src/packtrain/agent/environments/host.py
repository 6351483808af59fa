"""The machine as it is."""

from __future__ import annotations

import os

from packtrain.agent.environments import Command
from packtrain.agent.steps.processes import Program
from packtrain.errors import FailedError


class Host:
    def wrap(self, command: Command) -> Program:
        if command.entrypoint:
            raise FailedError(
                "unsupported", "an empty command or the shell ENTRYPOINT needs a container: name an image"
            )
        variables = {**command.variables, **command.own}
        path = os.pathsep.join((*command.path, variables.get("PATH", os.defpath)))
        return Program(command.argv, {**variables, "PATH": path}, command.work_dir)

    def complaint(self, exit_code: int, last_words: str) -> str:
        return ""
