"""Builds the workflow document of a submit file, as `packtrain convert` prints it."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.condor.submitfile.checkpoint import add_checkpoint
from packtrain.condor.submitfile.file_transfer import add_inputs, add_outputs
from packtrain.condor.submitfile.other_commands import add_other_commands
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.condor.submitfile.program import add_program
from packtrain.condor.submitfile.resources import add_container, add_resources
from packtrain.condor.submitfile.syntax.macros import MacroError
from packtrain.condor.submitfile.wrapper_check import check_wrapper
from packtrain.spec.diagnostics import Position

_KEY_ORDER = (
    "name",
    "resources",
    "count",
    "matrix",
    "environment",
    "env",
    "inputs",
    "output",
    "checkpoint",
    "expect",
    "limits",
    "htcondor",
    "steps",
)


def translate(submit: ParsedSubmit, expect: tuple[str, ...]) -> WorkflowDraft:
    """Build the workflow document. It is complete if `submit.report` has no errors.

    Args:
        submit: The parsed submit file; problems are added to its report.
        expect: Outputs that each job must produce, in addition to the declared ones.
    """
    draft = WorkflowDraft()
    draft.set_value(("name",), workflow_name(submit.description.name), Position())
    add_resources(submit, draft)
    add_container(submit, draft)
    run = add_program(submit, draft)
    add_inputs(submit, draft)
    add_outputs(submit, draft, run, expect)
    add_checkpoint(submit, draft)
    add_other_commands(submit, draft)
    check_wrapper(submit, draft)
    _add_jobs(submit, draft)
    for name in sorted(submit.job_table.undefined_macros - {"submit_file"}):
        submit.report.add(_first_mention(submit, name), "warning", f"$({name}) is not set, so it is empty")
    draft.document = {key: draft.document[key] for key in _KEY_ORDER if key in draft.document}
    return draft


def workflow_name(path: str) -> str:
    """Return a valid workflow name for a submit file."""
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", Path(path).stem).lstrip("-._ ")[:90]
    return name or "job"


def _add_jobs(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    position = Position(submit.description.queue.line if submit.description.queue else 1)
    try:
        for key, value in submit.job_table.to_matrix().items():
            draft.set_value((key,), value, position)
    except MacroError as error:
        submit.report.add(position, "error", str(error))


def _first_mention(submit: ParsedSubmit, name: str) -> Position:
    pattern = re.compile(rf"\$\w*\(\s*{re.escape(name)}\b", re.IGNORECASE)
    lines = [command.line for command in submit.description.commands.values() if pattern.search(command.value)]
    return Position(min(lines, default=1))
