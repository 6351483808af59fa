"""Render the template of a module for the step that uses it: `.Job` is the workflow, `.Step` the step."""

from __future__ import annotations

from typing import Any

import yaml

from packtrain.planner.modules.go_template import RenderedTemplate, TemplateError, render_template, to_text
from packtrain.spec.diagnostics import ERROR, Diagnostic
from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.steps import RENDERED_CHILDREN_MARKER, EnvVar, Step
from packtrain.spec.models.workflow import Resources, Workflow
from packtrain.spec.secret_references import CONFIDENTIAL_KEYS


class _ChildSteps:
    """The steps of the user, which the planner inserts where the template prints them."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = steps

    def __len__(self) -> int:
        return len(self._steps)

    def __str__(self) -> str:
        return RENDERED_CHILDREN_MARKER


def render_module(text: str, address: str, workflow: Workflow, step: Step) -> RenderedTemplate | Diagnostic:
    """Return the rendered module, or why it cannot be rendered.

    Args:
        text: The module.yaml.
        address: Its address, for the diagnostic.
        workflow: The workflow that uses it.
        step: The step that uses it.
    """
    try:
        return render_template(text, {"Job": workflow, "Step": step}, _get_field, {"toYaml": _to_yaml})
    except TemplateError as error:
        return Diagnostic(address, error.line, 1, ERROR, str(error))


def _get_field(value: Any, name: str) -> Any:
    """Return a field by its Go name, which differs from the key of the file in case only: CPUsPerTask, cpusPerTask."""
    if isinstance(value, Step) and name == "Steps" and value.use is not None:
        return _ChildSteps(value.use.steps)
    if isinstance(value, Step) and name == "Run" and value.run is None:
        return value.use  # DeepSquare's documentation calls the steps of the user .Step.Run.Steps
    for attribute, field in type(value).model_fields.items() if isinstance(value, SpecModel) else ():
        if (field.alias or "").lower() == name.lower():
            if (type(value), field.alias) in CONFIDENTIAL_KEYS:
                raise LookupError(f"{field.alias} is a secret, which a module may not read")
            found = getattr(value, attribute)
            is_child_steps = name == "Steps" and isinstance(found, tuple)
            return _ChildSteps(found) if is_child_steps else found
    raise LookupError(f"there is no {name!r}")


def _to_yaml(value: Any) -> str:
    if isinstance(value, _ChildSteps):
        return f"- {value}" if len(value) else ""
    if value is None or value == () or value == "":
        return ""
    if isinstance(value, (tuple, list)) and all(isinstance(one, EnvVar) for one in value):
        data: Any = [one.model_dump(by_alias=True) for one in value]
    elif isinstance(value, Resources):
        data = {
            "tasks": value.tasks,
            "cpusPerTask": value.cpus_per_task,
            "memPerCpu": value.mem_per_cpu,
            "gpus": value.gpus,
        }
    elif isinstance(value, (str, int, float)):
        return to_text(value)
    else:
        raise TypeError("`toYaml` of this value is not supported")
    return yaml.safe_dump(data, sort_keys=False).rstrip("\n")
