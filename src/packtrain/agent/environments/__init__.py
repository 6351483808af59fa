"""The surroundings of a step's command: the host itself, or a container.

A `StepCommand` is what a step wants to run. A `StepEnvironment` *wraps* it: it returns the `ProcessSpec` to start, and
recognizes when the environment, not the command, failed. The agent itself runs outside of the environment. Start
reading with the protocol below; `host` is the simplest implementation, `apptainer` starts containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from packtrain.agent.processes.process_table import ProcessSpec


@dataclass(frozen=True)
class StepCommand:
    """The command of a step, before an environment wraps it."""

    argv: tuple[str, ...]
    work_dir: Path
    env: Mapping[str, str] = field(repr=False)  # overridden by the image's variables
    step_env: Mapping[str, str] = field(repr=False)  # the step's own variables, which override the image's
    path_prefix: tuple[str, ...] = ()  # folders in front of PATH
    use_entrypoint: bool = False  # argv are arguments of the image's entrypoint


class StepEnvironment(Protocol):
    """Wraps the commands of steps."""

    def wrap(self, command: StepCommand) -> ProcessSpec:
        """Return the program that runs the command. Raises FailedError: container_failed, unsupported."""
        ...

    def startup_error(self, exit_code: int, last_line: str) -> str:
        """Return the environment's own message if the command did not even start, "" if it did."""
        ...
