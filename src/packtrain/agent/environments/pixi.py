"""Pixi environments: the commands of steps run on the host, with the variables of the activated environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

from packtrain.agent.environments import StepCommand
from packtrain.agent.environments.host import HostEnvironment
from packtrain.agent.processes.process_table import ProcessSpec

Activate = Callable[[Mapping[str, str]], "dict[str, str]"]
"""Returns the variables of a program in the environment, given those of the agent. Raises FailedError."""


class PixiStepEnvironment(HostEnvironment):
    """Runs commands in an environment that is installed.

    Args:
        activate: Activates the environment.
        python_path: Folders of Python packages of the workspace.
        command_folder: Has the `pixi` command for machines that have none.
    """

    def __init__(self, activate: Activate, python_path: Sequence[str], command_folder: Path | None) -> None:
        self._activate, self._python_path, self._command_folder = activate, python_path, command_folder

    def wrap(self, command: StepCommand) -> ProcessSpec:
        activated = self._activate(command.env)
        if self._command_folder is not None and shutil.which("pixi", path=activated.get("PATH")) is None:
            activated["PATH"] = f"{activated['PATH']}{os.pathsep}{self._command_folder}"
        spec = super().wrap(
            StepCommand(
                command.argv,
                command.work_dir,
                activated,
                command.step_env,
                command.path_prefix,
                command.use_entrypoint,
            )
        )
        if not self._python_path:
            return spec
        python_path = os.pathsep.join(filter(None, (*self._python_path, spec.env.get("PYTHONPATH", ""))))
        return ProcessSpec(spec.argv, {**spec.env, "PYTHONPATH": python_path}, spec.work_dir)
