"""Translates HTCondor's self-checkpointing: which files the next start of the program finds in its working folder."""

from __future__ import annotations

import re
from typing import Any

from packtrain.condor.submitfile.file_transfer import WORK_DIR, is_inside, list_templates
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.spec.converted_file import WorkflowDraft

_ALL_FILES = ("*", ".*")  # HTCondor takes every new or changed file at the top of the folder, also hidden ones


def add_checkpoint(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Add `checkpoint` to the workflow, if the program exits to be continued or its files are kept on eviction."""
    key = "checkpoint_exit_code" if submit.has("checkpoint_exit_code") else "when_to_transfer_output"
    exit_code = _parse_exit_code(submit)
    keeps_evicted = submit.common_value("when_to_transfer_output").lower() == "on_exit_or_evict"
    if not exit_code and not keeps_evicted:
        if submit.has("transfer_checkpoint_files"):
            message = "transfer_checkpoint_files has no effect without checkpoint_exit_code"
            submit.warning("transfer_checkpoint_files", message, "add checkpoint_exit_code = 85")
        return
    document: dict[str, Any] = {
        "paths": _checkpoint_paths(submit),
        "folder": WORK_DIR,
        "when": "exitOrEvict" if keeps_evicted else "exit",
        "exitCode": exit_code,
    }
    draft.set_value(("checkpoint",), document, submit.position(key))


def _parse_exit_code(submit: ParsedSubmit) -> int:
    """Return the exit code that means “saved, continue”, or 0 if there is none."""
    text = submit.common_value("checkpoint_exit_code")
    if not text:
        return 0
    if re.fullmatch(r"\d{1,3}", text) and 0 < int(text) < 256:
        return int(text)
    submit.error("checkpoint_exit_code", f"checkpoint_exit_code should be from 1 to 255, but is {text[:40]!r}")
    return 0


def _checkpoint_paths(submit: ParsedSubmit) -> list[str]:
    """Return the files of the checkpoint: the declared ones, else the declared outputs, else all new files."""
    for key in ("transfer_checkpoint_files", "transfer_output_files"):
        paths = []
        for template in list_templates(submit, key):
            if all(map(is_inside, submit.job_table.values_per_job(template))):
                paths.append(submit.to_workflow_text(key, template.rstrip("/")))
            elif key == "transfer_checkpoint_files":
                submit.error(key, f"{key}: {template[:80]} is not in the working folder")
        if paths:
            return paths
    return list(_ALL_FILES)
