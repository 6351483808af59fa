"""Warns about a program that is a script and hides failures."""

from __future__ import annotations

from pathlib import Path

from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.diagnostics import WARNING, Diagnostic
from packtrain.spec.script_check import find_masking_command


def check_wrapper(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Warn about a script that hides failures, unless expected outputs would reveal them."""
    if "expect" in draft.document or not submit.flag("transfer_executable", True):
        return
    path = submit.job_table.values_per_job(submit.template("executable"))[0]
    try:
        masking = find_masking_command(submit.context.read_text(path)) if path and "://" not in path else None
    except (OSError, ValueError):  # the planner reports a missing file
        return
    if masking:
        script_path = str(Path(submit.description.name).parent / path)
        message = f"the exit code is that of `{masking.command[:60]}`: if the program fails, the job still succeeds"
        hint = "name an output that it must produce with --expect FILE, or add `set -e` at the top of the script"
        submit.report.extend([Diagnostic(script_path, masking.line, 1, WARNING, message, hint)])
