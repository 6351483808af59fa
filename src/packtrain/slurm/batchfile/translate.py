"""Builds the workflow document of a batch script, as `packtrain convert` prints it."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.slurm.batchfile.jobs import add_jobs
from packtrain.slurm.batchfile.option_table import OPTIONS, Handling
from packtrain.slurm.batchfile.parsed_batch import ParsedBatch
from packtrain.slurm.batchfile.program import add_program
from packtrain.slurm.batchfile.resources import add_resources
from packtrain.spec.converted_file import WorkflowDraft, workflow_name

_KEY_ORDER = (
    "name", "resources", "matrix", "environment", "inputs", "expect", "limits", "recovery", "slurm", "steps",
)  # fmt: skip
# Options that Slurm gets unchanged although packtrain also translates them.
_ALSO_PASSED_THROUGH = (
    "cpus-per-task", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "mem", "mem-per-cpu",
    "mem-per-gpu", "nodes", "ntasks", "ntasks-per-node", "time",
)  # fmt: skip
# Options that packtrain would otherwise compute from `resources`, and those of a script that replace them.
_COMPUTED = {
    "nodes": (),
    "ntasks": ("ntasks-per-node", "ntasks-per-gpu"),
    "cpus-per-task": ("cpus-per-gpu",),
    "mem-per-cpu": ("mem", "mem-per-gpu"),
    "tmp": (),
}


def translate(batch: ParsedBatch, expect: tuple[str, ...]) -> WorkflowDraft:
    """Build the workflow document. It is complete if `batch.report` has no errors.

    Args:
        batch: The batch script; problems are added to its report.
        expect: Outputs that each job must produce.
    """
    draft = WorkflowDraft()
    name = workflow_name(re.sub(r"[\s.]+", "-", batch.value("job-name")) or Path(batch.name).name)
    draft.set_value(("name",), name, batch.position("job-name"))
    add_resources(batch, draft)
    array_variables = add_jobs(batch, draft)
    add_program(batch, draft, array_variables, expect)
    _add_options(batch, draft)
    # Two copies of a job would write the same files, because the script runs in the user's own folder.
    draft.set_value(("recovery", "stragglerBudget"), 0, batch.position())
    draft.document = {key: draft.document[key] for key in _KEY_ORDER if key in draft.document}
    return draft


def _add_options(batch: ParsedBatch, draft: WorkflowDraft) -> None:
    """Pass options through, and report the others."""
    for name, value in batch.options.items():
        option = OPTIONS.get(name)
        if option is None or option.handling is Handling.PASSED_THROUGH or name in _ALSO_PASSED_THROUGH:
            draft.set_value(("slurm", name), value or True, batch.position(name))
        elif option.handling is Handling.WARNED:
            batch.warning(name, f"--{name} is ignored: {option.reason}")
        elif option.handling is Handling.REFUSED:
            batch.error(name, f"--{name} is not supported: {option.reason}")
    for name, alternatives in _COMPUTED.items():
        if not any(map(batch.has, (name, *alternatives))):
            draft.set_value(("slurm", name), False, batch.position())
