"""From a file to a Workflow, or to all of its problems at once. The way in: `load`, `load_text`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from packtrain.spec import cross_checks, matrix, output_conflicts, unsupported_keys, validation_messages, yaml_loader
from packtrain.spec.diagnostics import ERROR, Problem, Report, shown
from packtrain.spec.model_walk import Node, walk
from packtrain.spec.models.field_types import Model
from packtrain.spec.models.inputs_outputs import Expect
from packtrain.spec.models.steps import is_children_mark
from packtrain.spec.models.workflow import Module, Workflow

M = TypeVar("M", bound=Model)

# Go's template syntax is no YAML unless it is quoted; modules in the wild write it bare.
_BARE_MARK = re.compile(r"^(\s*-\s+)(\{\{-?\s*\.Step\.Steps\s*-?\}\})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Loaded:
    """`workflow` is None exactly when one of the problems is an error."""

    workflow: Workflow | None
    problems: tuple[Problem, ...]

    def expecting(self, paths: tuple[str, ...]) -> Loaded:
        """The same, with more files that must be there at the end."""
        if self.workflow is None or not paths:
            return self
        more = tuple(Expect(path=path) for path in paths)
        made = self.workflow.model_copy(update={"expect": (*self.workflow.expect, *more)})
        return replace(self, workflow=made)


@dataclass(frozen=True)
class LoadedModule:
    module: Module | None
    problems: tuple[Problem, ...]


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a workflow file. Never raises for what is in it, nor for a file that cannot be read."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(yaml_loader.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return Loaded(None, (_unreadable(name, error),))
    return load_text(data, name)


def load_text(text: str | bytes, name: str = "workflow.yaml") -> Loaded:
    """Read a workflow from its text; `name` stands in the problems."""
    return load_document(yaml_loader.read(text, name))


def load_document(document: yaml_loader.Document) -> Loaded:
    """A workflow from what its file says."""
    workflow, report = _made(Workflow, document)
    if workflow is not None:
        workflow._origin = document.origin
        _check_jobs(workflow, report)
    return Loaded(None if report.failed else workflow, report.problems)


def load_module(path: Path) -> LoadedModule:
    """Read a module.yaml."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return LoadedModule(None, (_unreadable(str(path), error),))
    document = yaml_loader.read(_BARE_MARK.sub(r'\1"{{ .Step.Steps }}"', text), str(path))
    module, report = _made(Module, document)
    if module is not None:
        module._origin = document.origin
    return LoadedModule(None if report.failed else module, report.problems)


def _unreadable(name: str, error: Exception) -> Problem:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Problem(name, 1, 1, ERROR, f"the file cannot be read: {reason}")


def _made(model: type[M], document: yaml_loader.Document) -> tuple[M | None, Report]:
    """The model if the document fits it; the report has all that can be said without it."""
    report = Report(document.origin)
    report.extend(document.problems)
    if document.value is None and report.failed:
        return None, report
    nodes = list(walk(model, document.value))
    cross_checks.apply(nodes, report)
    unsupported_keys.apply(nodes, report)
    if model is not Module:
        _refuse_marks(nodes, report)
    try:
        return model.model_validate(document.value), report
    except ValidationError as error:
        validation_messages.report_all(error.errors(), {node.path: node.model for node in nodes}, report)
        return None, report


def _refuse_marks(nodes: list[Node], report: Report) -> None:
    for node in nodes:
        for key, steps in node.raw.items():
            for position, step in enumerate(steps if isinstance(steps, list) else ()):
                if is_children_mark(step):
                    path = (*node.path, key, position)
                    report.error(path, f"{shown(path)} is a mark that has a meaning only in a module.yaml")


def _check_jobs(workflow: Workflow, report: Report) -> None:
    excess = matrix.too_large(workflow.matrix, workflow.count)
    if excess:
        report.key_error(("matrix",) if workflow.matrix else ("count",), excess, "split the run")
        return
    if not matrix.expand(workflow.matrix, workflow.count):
        report.key_error(("matrix",), "the matrix excludes every combination: no job is left")
    output_conflicts.check(workflow, report)
