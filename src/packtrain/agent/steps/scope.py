"""Where a step stands: its path, what its level adds to the variables, with whom it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Union

from packtrain.agent.steps.processes import ProcessTree
from packtrain.plan import Step

VariableLayer = Union[Mapping[str, str], Path]
"""Variables, or a file that holds some by the time when they are needed."""


@dataclass(frozen=True)
class Scope:
    path: str  # "" at the top, then "sweep", "sweep/2", "sweep/2/train"
    layers: tuple[VariableLayer, ...]  # later ones win
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
    """A name for each step of a level, no two alike: its own, or `step-2` for the second."""
    names: list[str] = []
    for number, step in enumerate(steps, 1):
        plain = name = step.name.strip().replace("/", "_") or f"step-{number}"
        while name in names:
            name = f"{plain}-{number}"
            number += 1
        names.append(name)
    return names
