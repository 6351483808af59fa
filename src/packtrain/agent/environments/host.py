"""Commands that run on the host, without a container."""

from __future__ import annotations

import os

from packtrain.agent.environments import StepCommand
from packtrain.agent.processes.process_table import ProcessSpec
from packtrain.errors import FailedError


class HostEnvironment:
    """Runs commands directly on the machine."""

    def wrap(self, command: StepCommand) -> ProcessSpec:
        if command.use_entrypoint:
            raise FailedError(
                "unsupported", "an empty command or the shell ENTRYPOINT needs a container: name an image"
            )
        variables = {**command.env, **command.step_env}
        path = os.pathsep.join((*command.path_prefix, variables.get("PATH", os.defpath)))
        return ProcessSpec(command.argv, {**variables, "PATH": path}, command.work_dir)

    def startup_error(self, exit_code: int, last_line: str) -> str:
        return ""
