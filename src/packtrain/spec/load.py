"""Load a workflow file: return a Workflow, or all diagnostics of the file at once."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from packtrain.spec import cross_checks, matrix, output_conflicts, unsupported_keys, validation_messages, yaml_loader
from packtrain.spec.diagnostics import (
    ERROR,
    WARNING,
    Diagnostic,
    DiagnosticReport,
    KeyPath,
    Position,
    SourceMap,
    did_you_mean,
    format_key_path,
)
from packtrain.spec.model_walk import ModelNode, model_keys, walk_models
from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.inputs_outputs import ExpectedOutput
from packtrain.spec.models.pixi import PixiConfig
from packtrain.spec.models.steps import is_children_marker
from packtrain.spec.models.workflow import Workflow, WorkflowModule

ModelT = TypeVar("ModelT", bound=SpecModel)


@dataclass(frozen=True)
class LoadResult:
    """A workflow and its diagnostics. `workflow` is None if and only if one of them is an error."""

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]

    def with_expected_outputs(self, paths: tuple[str, ...]) -> LoadResult:
        """Return the result with further expected outputs."""
        if self.workflow is None or not paths:
            return self
        more = tuple(ExpectedOutput(path=path) for path in paths)
        workflow = self.workflow.model_copy(update={"expect": (*self.workflow.expect, *more)})
        return replace(self, workflow=workflow)

    def with_pixi_environment(self, pixi: PixiConfig) -> LoadResult:
        """Return the result with a Pixi environment for all commands, instead of a container or another environment."""
        if self.workflow is None:
            return self
        environment = self.workflow.environment.model_copy(update={"pixi": pixi, "container": None})
        return replace(self, workflow=self.workflow.model_copy(update={"environment": environment}))


@dataclass(frozen=True)
class ModuleLoadResult:
    """A module and its diagnostics."""

    module: WorkflowModule | None
    diagnostics: tuple[Diagnostic, ...]


def load_workflow_file(path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> LoadResult:
    """Load a workflow file. Invalid content and unreadable files become diagnostics, never exceptions.

    Args:
        path: The file.
        overrides: Top-level keys that replace those of the file.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(yaml_loader.MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        return LoadResult(None, (_unreadable_file_diagnostic(name, error),))
    return load_workflow_text(data, name, overrides)


def load_workflow_text(
    text: str | bytes, filename: str = "workflow.yaml", overrides: Mapping[str, Any] | None = None
) -> LoadResult:
    """Load a workflow from text; diagnostics name `filename`."""
    document = _unwrap_job(yaml_loader.parse_yaml(text, filename))
    if overrides and isinstance(document.value, dict):
        document = replace(document, value={**document.value, **overrides})
    return validate_workflow(document)


def _unwrap_job(document: yaml_loader.YamlDocument) -> yaml_loader.YamlDocument:
    """Return the content of `job:`, which wraps the workflow in requests to DeepSquare's API, as the document."""
    job = document.value.get("job") if isinstance(document.value, dict) else None
    if not isinstance(job, dict) or set(document.value) & {"resources", "steps"}:
        return document
    position = document.source_map.key_position(("job",))
    others = ", ".join(str(key) for key in document.value if key != "job")
    message = "the workflow is read from below `job`" + (f"; these keys beside it are ignored: {others}" * bool(others))
    notice = Diagnostic(document.source_map.filename, position.line, position.column, WARNING, message)
    return yaml_loader.YamlDocument(job, document.source_map.below("job"), (*document.diagnostics, notice))


def validate_workflow(document: yaml_loader.YamlDocument) -> LoadResult:
    """Validate a parsed document."""
    workflow, report = _validate_document(Workflow, document)
    if workflow is not None:
        workflow._source_map = document.source_map
        _check_matrix_and_outputs(workflow, report)
    return LoadResult(None if report.has_errors else workflow, report.diagnostics)


def load_module_text(text: str, filename: str, lines: Sequence[int] = ()) -> ModuleLoadResult:
    """Load a rendered module.yaml. Unknown keys are warnings, because DeepSquare ignores them.

    Args:
        text: The rendered text.
        filename: The address of the module, for diagnostics.
        lines: The line of the file for each line of the text; () if they are the same.
    """
    document = _restore_lines(yaml_loader.parse_yaml(text, filename), lines)
    module, report = _validate_document(WorkflowModule, document)
    if module is not None:
        module._source_map = document.source_map
    return ModuleLoadResult(None if report.has_errors else module, report.diagnostics)


def _restore_lines(document: yaml_loader.YamlDocument, lines: Sequence[int]) -> yaml_loader.YamlDocument:
    """Return the document with the lines of the file that its template was read from."""
    original = dict(enumerate(lines, 1))

    def restore(positions: Mapping[KeyPath, Position]) -> dict[KeyPath, Position]:
        return {path: Position(original.get(one.line, one.line), one.column) for path, one in positions.items()}

    source_map = document.source_map
    return yaml_loader.YamlDocument(
        document.value,
        SourceMap(source_map.filename, restore(source_map.value_positions), restore(source_map.key_positions)),
        tuple(replace(one, line=original.get(one.line, one.line)) for one in document.diagnostics),
    )


def _unreadable_file_diagnostic(filename: str, error: Exception) -> Diagnostic:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Diagnostic(filename, 1, 1, ERROR, f"the file cannot be read: {reason}")


def _validate_document(
    model: type[ModelT], document: yaml_loader.YamlDocument
) -> tuple[ModelT | None, DiagnosticReport]:
    """Return the validated model, or None, and the report of all checks that do not need it."""
    report = DiagnosticReport(document.source_map)
    report.extend(document.diagnostics)
    if document.value is None and report.has_errors:
        return None, report
    nodes = list(walk_models(model, document.value))
    cross_checks.run_cross_checks(nodes, report)
    unsupported_keys.report_unsupported_keys(nodes, report)
    if model is not WorkflowModule:
        _reject_children_markers(nodes, report)
    value = _drop_unknown_keys(nodes, document.value, report) if model is WorkflowModule else document.value
    try:
        return model.model_validate(value), report
    except ValidationError as error:
        validation_messages.report_validation_errors(error.errors(), {node.path: node.model for node in nodes}, report)
        return None, report


def _drop_unknown_keys(nodes: list[ModelNode], value: Any, report: DiagnosticReport) -> Any:
    """Return a copy of the document without unknown keys, which become warnings.

    A key that may be the misspelt one of several alternatives stays, so that it is an error: without it the step would
    do nothing.
    """
    kept = copy.deepcopy(value)
    for node in nodes:
        choices = cross_checks.EXACTLY_ONE_OF.get(node.model, ())
        if choices and not any(node.raw.get(key) is not None for key in choices):
            continue
        for key in set(node.raw) - model_keys(node.model):
            message = f"{format_key_path(node.path)} has no key {key!r}, which is ignored"
            report.key_warning((*node.path, key), message, did_you_mean(key, model_keys(node.model)))
            target = kept
            for part in node.path:
                target = target[part]
            target.pop(key, None)
    return kept


def _reject_children_markers(nodes: list[ModelNode], report: DiagnosticReport) -> None:
    for node in nodes:
        for key, steps in node.raw.items():
            for position, step in enumerate(steps if isinstance(steps, list) else ()):
                if is_children_marker(step):
                    path = (*node.path, key, position)
                    report.error(
                        path, f"{format_key_path(path)}: `{{{{ .Step.Steps }}}}` is only valid in a module.yaml"
                    )


def _check_matrix_and_outputs(workflow: Workflow, report: DiagnosticReport) -> None:
    excess = matrix.job_limit_error(workflow.matrix, workflow.count)
    if excess:
        report.key_error(("matrix",) if workflow.matrix else ("count",), excess, "split the run")
        return
    if not matrix.expand_matrix(workflow.matrix, workflow.count):
        report.key_error(("matrix",), "the matrix excludes every combination, so there is no job")
    output_conflicts.check_output_conflicts(workflow, report)
