"""Translates the script itself: how it is started, its variables, and the files that it must produce."""

from __future__ import annotations

import glob
import os
import posixpath
import re
import shlex
from pathlib import Path
from typing import Any

from packtrain.slurm.batchfile import values
from packtrain.slurm.batchfile.jobs import COLUMN
from packtrain.slurm.batchfile.log_files import add_log_files
from packtrain.slurm.batchfile.parsed_batch import ParsedBatch
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.diagnostics import WARNING, Position
from packtrain.spec.script_check import find_last_command, find_masking_command, has_several_commands, may_hide_failures

_INPUT = "script"
_FOLDER = "batch"
_OWN_VARIABLES = ("SLURM_OPEN_MODE", "SLURM_TIME_FORMAT")  # of packtrain's own call of sbatch
_ARRAY_VARIABLES = (
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP",
)  # fmt: skip


def add_program(
    batch: ParsedBatch, draft: WorkflowDraft, array_variables: dict[str, str], expect: tuple[str, ...]
) -> None:
    """Add the script as an input, the step that runs it, and the expected outputs.

    Args:
        batch: The batch script.
        draft: Receives the keys.
        array_variables: The variables that describe the array; empty if the job is none.
        expect: Outputs that each job must produce.
    """
    job_name = batch.value("job-name") or batch.script_name
    script = os.path.relpath(batch.name, batch.context.script_dir)
    document = {"file": {"path": script, "snapshot": True}, "folder": _FOLDER, "unpack": "never"}
    draft.set_value(("inputs", _INPUT), document, Position())
    _add_inherited_variables(batch, draft)
    run: dict[str, Any] = {
        "shell": "/bin/bash",  # other shells drop exported functions, such as `module`
        "command": _build_command(batch, bool(array_variables)),
        "workDir": batch.work_dir,
        "env": [
            {"key": "SLURM_JOB_NAME", "value": job_name},
            {"key": "SLURM_SUBMIT_DIR", "value": str(batch.context.submit_dir)},
            *({"key": key, "value": value} for key, value in array_variables.items()),
            *_exported_values(batch),
        ],
    }
    signal = batch.parse("signal", values.parse_signal, None)
    if signal:
        run["stopSignal"] = signal.name
        draft.set_value(("limits", "grace"), signal.seconds, batch.position("signal"))
    add_log_files(batch, job_name, COLUMN if array_variables else "", run)
    if expect:
        run["collect"] = [_collected_output(batch, path) for path in expect]
        draft.set_value(("expect",), list(expect), Position())
        _warn_existing(batch, expect)
    gpus = draft.document["resources"]["gpus"]  # type: ignore[index]
    resources = {"resources": {"gpusPerTask": gpus}} if gpus else {}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", batch.script_name).strip("-.") or "script"
    draft.set_value(("steps",), [{"name": name, **resources, "run": run}], Position())
    _check_script(batch, expect)


def _warn_existing(batch: ParsedBatch, expect: tuple[str, ...]) -> None:
    for path in expect:
        if (Path(batch.work_dir) / path).exists():
            message = f"{path} exists already: a job that does not write it again also passes the check"
            batch.report.add(Position(), WARNING, message, "remove it before the run")


def _collected_output(batch: ParsedBatch, path: str) -> str | dict[str, str]:
    """Return the rule that copies a file of the working folder to the same path below the outputs."""
    folder = posixpath.dirname(path)
    if glob.has_magic(folder):
        batch.report.add(Position(), "error", f"--expect {path}: the name of a folder cannot be a pattern")
    if not folder:
        return path
    return {"path": path, "to": folder if glob.has_magic(path) else path}


def _build_command(batch: ParsedBatch, is_array: bool) -> str:
    # A script that is no array must not see the array that packtrain submits.
    lines = [f"unset {' '.join(_OWN_VARIABLES if is_array else (*_OWN_VARIABLES, *_ARRAY_VARIABLES))}"]
    script = f'"$STORAGE_PATH"/{_FOLDER}/{shlex.quote(batch.script_name)}'
    stdin = batch.value("input")
    redirection = f" < {shlex.quote(stdin)}" if stdin and stdin != "/dev/null" else ""
    if "%" in stdin:
        batch.error("input", "--input with a pattern is not supported", "redirect the input of the program instead")
    return "\n".join([*lines, f"chmod +x {script}", f"exec {script}{redirection}"]) + "\n"


def _add_inherited_variables(batch: ParsedBatch, draft: WorkflowDraft) -> None:
    """Translate --export: which variables of the submitting shell the script gets."""
    entries = _export_entries(batch)
    if "NONE" in entries or "NIL" in entries:
        return
    names = [entry for entry in entries if "=" not in entry]
    inherited = "*" if "ALL" in names or not batch.has("export") else names
    if inherited:
        draft.set_value(("environment", "inherit"), inherited, batch.position("export"))


def _exported_values(batch: ParsedBatch) -> list[dict[str, str]]:
    values = (entry.partition("=")[::2] for entry in _export_entries(batch) if "=" in entry)
    return [{"key": key, "value": value} for key, value in values]


def _export_entries(batch: ParsedBatch) -> list[str]:
    """Return the comma-separated entries; a value may have commas inside of quotes."""
    entries = re.findall(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+", batch.value("export"))
    return [re.sub(r"(['\"])(.*?)\1", r"\2", entry.strip()) for entry in entries]


def _check_script(batch: ParsedBatch, expect: tuple[str, ...]) -> None:
    """Warn about a script that hides failures, unless expected outputs would reveal them."""
    if not batch.text.startswith("#!"):
        hint = "begin the script with #!/bin/bash"
        batch.report.add(Position(), "error", "the script has no interpreter, so sbatch would reject it", hint)
    if "\r\n" in batch.text:
        hint = "convert it, for example with dos2unix"
        batch.report.add(Position(), "error", "the script has DOS line breaks, so sbatch would reject it", hint)
    if expect or not may_hide_failures(batch.text):
        return
    hint = "name an output that it must produce with --expect FILE, or add `set -e`"
    if masking := find_masking_command(batch.text):
        message = f"the exit code is that of `{masking.command[:60]}`: if the program fails, the job still succeeds"
        batch.report.add(Position(masking.line), WARNING, message, hint)
    elif has_several_commands(batch.text) and (last := find_last_command(batch.text)):
        message = f"without `set -e`, the exit code is that of `{last.command[:60]}`: earlier failures are not noticed"
        batch.report.add(Position(last.line), WARNING, message, hint)
