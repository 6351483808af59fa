"""Translates the file names of `--output` and `--error`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from packtrain.slurm.batchfile.parsed_batch import ParsedBatch

_FIELD = re.compile(r"%(\d*)([A-Za-z%])")
# What differs from attempt to attempt is a variable of the job; on this machine there is no job number.
_VARIABLES = {
    "j": "${SLURM_JOB_ID:-local}",
    "J": "${SLURM_JOB_ID:-local}",
    "A": "${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-local}}",
    "N": "${SLURMD_NODENAME:-localhost}",
    "u": "${USER:-}",
}
_CONSTANTS = {"t": "0", "n": "0", "s": "batch", "%": "%"}
_NO_ARRAY_TASK = "4294967294"  # what Slurm writes for %a of a job that is no array


def add_log_files(batch: ParsedBatch, job_name: str, array_column: str, run: dict[str, object]) -> None:
    """Add `stdout` and `stderr` to the step: the files that Slurm would write.

    Args:
        batch: The batch script.
        job_name: For %x.
        array_column: Column of the matrix with the array index; "" if the job is no array.
        run: The step's `run` document.
    """
    default = "slurm-%A_%a.out" if array_column else "slurm-%j.out"
    run["stdout"] = _log_path(batch, "output", batch.value("output") or default, job_name, array_column)
    error = batch.value("error")
    run["stderr"] = _log_path(batch, "error", error, job_name, array_column) if error else run["stdout"]
    if batch.value("open-mode").startswith("a"):
        run["appendLogs"] = True


def _log_path(batch: ParsedBatch, key: str, pattern: str, job_name: str, array_column: str) -> str:
    if "\\" in pattern:  # Slurm then replaces no fields
        name = pattern.replace("\\", "")
    else:
        name = _FIELD.sub(lambda match: _field_text(batch, key, match, job_name, array_column), pattern)
    return os.path.normpath(Path(batch.work_dir) / name)


def _field_text(batch: ParsedBatch, key: str, match: re.Match[str], job_name: str, array_column: str) -> str:
    width, letter = match.groups()
    if letter == "x":
        return job_name
    if letter == "a":
        if width and array_column:
            batch.warning(key, f"--{key}: the number of {match.group()} is not padded with zeros", "write %a")
        return f"{{{array_column}}}" if array_column else _NO_ARRAY_TASK
    if letter in _VARIABLES:
        if width:
            batch.warning(key, f"--{key}: the number of {match.group()} is not padded with zeros", f"write %{letter}")
        return _VARIABLES[letter]
    return _CONSTANTS.get(letter, match.group())
