"""Translates `--array`: each index becomes a job of the run."""

from __future__ import annotations

from itertools import pairwise

from packtrain.slurm.batchfile import values
from packtrain.slurm.batchfile.parsed_batch import ParsedBatch
from packtrain.spec.converted_file import WorkflowDraft

COLUMN = "task"
"""The column of the matrix with the array index."""


def add_jobs(batch: ParsedBatch, draft: WorkflowDraft) -> dict[str, str]:
    """Add `matrix` to the workflow and return the variables of the script that describe the array."""
    no_array: tuple[tuple[int, ...], int] = ((), 0)
    indexes, limit = batch.parse("array", values.parse_array, no_array)
    if not indexes:
        return {}
    draft.set_value(("matrix",), {COLUMN: [str(index) for index in indexes]}, batch.position("array"))
    if limit:
        draft.set_value(("slurm", "array"), f"%{limit}", batch.position("array"))
    steps = {later - earlier for earlier, later in pairwise(indexes)}
    return {
        "SLURM_ARRAY_TASK_ID": f"{{{COLUMN}}}",
        "SLURM_ARRAY_TASK_COUNT": str(len(indexes)),
        "SLURM_ARRAY_TASK_MIN": str(indexes[0]),
        "SLURM_ARRAY_TASK_MAX": str(indexes[-1]),
        "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
    }
