"""A submit description to the document of a workflow: the same that `packtrain convert` prints."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.condor.submitfile.file_transfer import add_inputs, add_outputs
from packtrain.condor.submitfile.macros import MacroError
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.condor.submitfile.program import add_program
from packtrain.condor.submitfile.resources import add_container, add_other_commands, add_resources
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
    "expect",
    "limits",
    "htcondor",
    "steps",
)


def translate(submit: ParsedSubmit, expect: tuple[str, ...]) -> WorkflowDraft:
    """Problems are told; the draft is complete if there is no error among them."""
    draft = WorkflowDraft()
    draft.set_value(("name",), workflow_name(submit.description.name), Position())
    add_resources(submit, draft)
    add_container(submit, draft)
    run = add_program(submit, draft)
    add_inputs(submit, draft)
    add_outputs(submit, draft, run, expect)
    add_other_commands(submit, draft)
    check_wrapper(submit, draft)
    _add_jobs(submit, draft)
    for name in sorted(submit.job_table.undefined_macros - {"submit_file"}):
        submit.report.add(_first_mention(submit, name), "warning", f"$({name}) is not set anywhere, so it is empty")
    draft.document = {key: draft.document[key] for key in _KEY_ORDER if key in draft.document}
    return draft


def workflow_name(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", Path(path).stem).lstrip("-._ ")[:90]
    return name or "job"


def _add_jobs(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    place = Position(submit.description.queue.line if submit.description.queue else 1)
    try:
        for key, value in submit.job_table.to_matrix().items():
            draft.set_value((key,), value, place)
    except MacroError as error:
        submit.report.add(place, "error", str(error))


def _first_mention(submit: ParsedSubmit, name: str) -> Position:
    mention = re.compile(rf"\$\w*\(\s*{re.escape(name)}\b", re.IGNORECASE)
    lines = [setting.line for setting in submit.description.commands.values() if mention.search(setting.value)]
    return Position(min(lines, default=1))
