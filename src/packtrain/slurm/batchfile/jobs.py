"""Translates `--array`: each index becomes a job of the run."""

from __future__ import annotations

from packtrain.slurm.batchfile import values
from packtrain.slurm.batchfile.parsed_batch import ParsedBatch
from packtrain.spec.converted_file import WorkflowDraft

COLUMN = "task"
"""The column of the matrix with the array index."""


def add_jobs(batch: ParsedBatch, draft: WorkflowDraft) -> dict[str, str]:
    """Add `matrix` to the workflow and return the variables of the script that describe the array."""
    array = batch.parse("array", values.parse_array, values.ArrayIndexes())
    if not array.indexes:
        return {}
    draft.set_value(("matrix",), {COLUMN: [str(index) for index in array.indexes]}, batch.position("array"))
    if array.limit:
        draft.set_value(("slurm", "array"), f"%{array.limit}", batch.position("array"))
    return {
        "SLURM_ARRAY_TASK_ID": f"{{{COLUMN}}}",
        "SLURM_ARRAY_TASK_COUNT": str(len(array.indexes)),
        "SLURM_ARRAY_TASK_MIN": str(array.indexes[0]),
        "SLURM_ARRAY_TASK_MAX": str(array.indexes[-1]),
        "SLURM_ARRAY_TASK_STEP": str(array.step),
    }
