"""Does the program's script hide failures? Its exit code is that of its last command, unless it says otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.spec.diagnostics import WARNING, Diagnostic

_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|k|z|a)?sh\b(.*)")
_ERREXIT = re.compile(r"^\s*set\s+(-[a-zA-Z]*e[a-zA-Z]*\b|-o\s+errexit\b)", re.MULTILINE)
_NON_FAILING_TEXT = """
    rm rmdir echo printf mv cp ls date cat touch sleep true : mkdir cd tar gzip zip du df chmod ln find
    wait unset export deactivate module conda hostname pwd popd pushd sync nvidia-smi
"""
_NON_FAILING_COMMANDS = frozenset(_NON_FAILING_TEXT.split())
_BLOCK_ENDS = ("fi", "done", "esac", "}", ")", ";;")


@dataclass(frozen=True)
class MaskingCommand:
    line: int
    command: str


def find_masking_command(script: str) -> MaskingCommand | None:
    """The last command of a shell script that succeeds whatever happened before it; None: nothing to say."""
    head = _SHEBANG.match(script)
    if not head or _ERREXIT.search(script) or re.search(r"(?:^|\s)-[a-z]*e", head.group(1)):
        return None
    last = _last_command(script)
    if last is None or "||" in last.command or "&&" in last.command:
        return None
    first, *more = last.command.split()
    return last if first.rpartition("/")[2] in _NON_FAILING_COMMANDS or [first, *more] == ["exit", "0"] else None


def _last_command(script: str) -> MaskingCommand | None:
    """The last line that does something; None if it closes a loop or a condition."""
    lines = script.split("\n")
    for number in range(len(lines), 0, -1):
        text = lines[number - 1].strip().rstrip("; ")
        if not text or text.startswith("#"):
            continue
        while number > 1 and lines[number - 2].endswith("\\"):
            number -= 1
            text = lines[number - 1].strip().removesuffix("\\") + text
        command = text.split(";")[-1].strip()
        return None if not command or command.split()[0] in _BLOCK_ENDS else MaskingCommand(number, command)
    return None


def check_wrapper(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Point at it where nothing else would notice: no output is expected."""
    if "expect" in draft.document or not submit.flag("transfer_executable", True):
        return
    path = submit.job_table.values_per_job(submit.template("executable"))[0]
    try:
        found = find_masking_command(submit.context.read_text(path)) if path and "://" not in path else None
    except (OSError, ValueError):  # that it is missing is told by the planner
        return
    if found:
        message = f"the exit code is that of `{found.command[:60]}`: if the program fails, the job still looks good"
        hint = "say what it must leave behind with --expect FILE, or write `set -e` at the top of the script"
        submit.report.extend(
            [Diagnostic(str(Path(submit.description.name).parent / path), found.line, 1, WARNING, message, hint)]
        )
