"""The position of a step: its path, the variables of its level, its process tree, and the names of its log files."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Union

from packtrain.agent.processes.process_table import ProcessTree
from packtrain.plan import Step

_MAX_NAME_CHARS = 180  # file systems allow 255 bytes

VariableLayer = Union[Mapping[str, str], Path]
"""Variables, or a file that is read when they are needed."""


@dataclass(frozen=True)
class Scope:
    """The position of a step among the levels of the workflow."""

    path: str  # "" at the top, then "sweep", "sweep/2", "sweep/2/train"
    layers: tuple[VariableLayer, ...]  # later ones override earlier ones
    env_file: Path  # DEEPSQUARE_ENV
    process_tree: ProcessTree

    @classmethod
    def root(cls, env_file: Path, process_tree: ProcessTree) -> Scope:
        return cls("", (env_file,), env_file, process_tree)

    def child(self, name: str) -> Scope:
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    def with_variables(self, variables: Mapping[str, str]) -> Scope:
        return replace(self, layers=(*self.layers, variables))

    def with_env_file(self, path: Path) -> Scope:
        return replace(self, layers=(*self.layers, path), env_file=path)

    def in_process_tree(self, process_tree: ProcessTree) -> Scope:
        return replace(self, process_tree=process_tree)


def unique_step_names(steps: Sequence[Step]) -> list[str]:
    """Return a unique name for each step of a level: its own, or `step-2` for the second."""
    names: list[str] = []
    for number, step in enumerate(steps, 1):
        plain = name = step.name.strip().replace("/", "_") or f"step-{number}"
        while name in names:
            name = f"{plain}-{number}"
            number += 1
        names.append(name)
    return names


class LogNames:
    """Chooses a unique log file name for each step path, e.g. `sweep.2.train`."""

    def __init__(self) -> None:
        self._paths_by_name: dict[str, str] = {}
        self._lock = threading.Lock()

    def name_for(self, path: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.replace("/", ".")).lstrip(".")[:_MAX_NAME_CHARS] or "_"
        name, number = plain, 1
        with self._lock:
            while self._paths_by_name.setdefault(name, path) != path:
                number += 1
                name = f"{plain}-{number}"
        return name
