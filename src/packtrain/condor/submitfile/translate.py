"""Builds the workflow document of a submit file, as `packtrain convert` prints it."""

from __future__ import annotations

import re

from packtrain.condor.submitfile.checkpoint import add_checkpoint
from packtrain.condor.submitfile.dag_variables import DAGMAN_MACROS, find_dag_variables
from packtrain.condor.submitfile.file_transfer import add_inputs, add_outputs
from packtrain.condor.submitfile.other_commands import add_other_commands
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.program import add_program
from packtrain.condor.submitfile.resources import add_container, add_resources
from packtrain.condor.submitfile.syntax.macros import MacroError
from packtrain.condor.submitfile.wrapper_check import check_wrapper
from packtrain.spec.converted_file import WorkflowDraft, workflow_name
from packtrain.spec.diagnostics import WARNING, Position

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
    _warn_undefined(submit)
    draft.document = {key: draft.document[key] for key in _KEY_ORDER if key in draft.document}
    return draft


def _add_jobs(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    position = Position(submit.description.queue.line if submit.description.queue else 1)
    try:
        for key, value in submit.job_table.to_matrix().items():
            draft.set_value((key,), value, position)
    except MacroError as error:
        submit.report.add(position, "error", str(error))


def _warn_undefined(submit: ParsedSubmit) -> None:
    """Warn about macros that are empty because nothing sets them; those of a DAG's node in one sentence."""
    mentions = {name: _first_mention(submit, name) for name in sorted(submit.job_table.undefined_macros)}
    undefined = {name: position for name, position in mentions.items() if position and name != "submit_file"}
    if not undefined:
        return
    dag = find_dag_variables(submit.context, submit.description.name)
    dag_names = [name for name in undefined if dag and name in dag.names]
    if dag and dag_names:
        macros = ", ".join(f"$({name})" for name in dag_names)
        message = f"this file belongs to {dag.dag}, which sets {macros}; run by itself, they are empty"
        hint = "set them in this file (NAME = VALUE), or run the DAG with condor_submit_dag"
        submit.report.add(undefined[dag_names[0]], WARNING, message, hint)
    for name, position in undefined.items():
        if name not in dag_names:
            reason = "only DAGMan sets it" if name in DAGMAN_MACROS else "it is not set"
            submit.report.add(position, WARNING, f"$({name}) is empty, because {reason}")


def _first_mention(submit: ParsedSubmit, name: str) -> Position | None:
    """Return where a macro is used without a default, or None."""
    pattern = re.compile(rf"\$\w*\(\s*{re.escape(name)}\b(?!\s*:)", re.IGNORECASE)
    lines = [command.line for command in submit.description.commands.values() if pattern.search(command.value)]
    return Position(min(lines)) if lines else None
