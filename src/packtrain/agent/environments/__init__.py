"""What surrounds a step's command: the host itself, or a container. The agent stays outside.

An Environment turns the Command that a step means into the Program that is started (`process.Program`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from packtrain.agent.steps.processes import ProcessSpec


@dataclass(frozen=True)
class StepCommand:
    """What a step means, before anything surrounds it."""

    argv: tuple[str, ...]
    work_dir: Path
    env: Mapping[str, str] = field(repr=False)  # an image's own override these
    step_env: Mapping[str, str] = field(repr=False)  # the step's, which override the image's
    path_prefix: tuple[str, ...] = ()  # in front of PATH
    use_entrypoint: bool = False  # argv are arguments for the image's entrypoint


class StepEnvironment(Protocol):
    def wrap(self, command: StepCommand) -> ProcessSpec:
        """Raises FailedError: container_failed, unsupported."""
        ...

    def startup_error(self, exit_code: int, last_line: str) -> str:
        """Why the command did not even start, if the environment itself said so; else ''."""
        ...
