"""Finds shell scripts that hide failures.

Without `set -e`, the exit code of a script is that of its last command, even if the training before it failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|k|z|a)?sh\b(.*)")
_ERREXIT = re.compile(r"^\s*set\s+(-[a-zA-Z]*e[a-zA-Z]*\b|-o\s+errexit\b)", re.MULTILINE)
_NON_FAILING_TEXT = """
    rm rmdir echo printf mv cp ls date cat touch sleep true : mkdir cd tar gzip zip du df chmod ln find
    wait unset export deactivate module conda hostname pwd popd pushd sync nvidia-smi
"""
_NON_FAILING_COMMANDS = frozenset(_NON_FAILING_TEXT.split())
_ASSIGNMENT = re.compile(r"(export\s+)?\w+=\S*$")
_BLOCK_ENDS = ("fi", "done", "esac", "}", ")", ";;")


@dataclass(frozen=True)
class LastCommand:
    """The last command of a script, whose exit code may hide failures of earlier commands."""

    line: int
    command: str


def may_hide_failures(script: str) -> bool:
    """Return whether a script is one of a shell that continues after a failed command."""
    shebang = _SHEBANG.match(script)
    return bool(shebang and not _ERREXIT.search(script) and not re.search(r"(?:^|\s)-[a-z]*e", shebang.group(1)))


def find_masking_command(script: str) -> LastCommand | None:
    """Return the last command of a script if it succeeds regardless of the commands before it."""
    last = find_last_command(script) if may_hide_failures(script) else None
    if last is None or "||" in last.command or "&&" in last.command:
        return None
    argv = last.command.split()
    is_masking = argv[0].rpartition("/")[2] in _NON_FAILING_COMMANDS or argv == ["exit", "0"]
    return last if is_masking else None


def has_several_commands(script: str) -> bool:
    """Return whether a script has commands before its last one, other than assignments."""
    lines = (line.strip() for line in re.sub(r"\\\n", " ", script).split("\n"))
    commands = [line for line in lines if line and not line.startswith("#") and not _ASSIGNMENT.match(line)]
    return len(commands) > 1


def find_last_command(script: str) -> LastCommand | None:
    """Return the last command, or None if the script ends with a loop or a condition."""
    lines = script.split("\n")
    for number in range(len(lines), 0, -1):
        text = lines[number - 1].strip().rstrip("; ")
        if not text or text.startswith("#"):
            continue
        while number > 1 and lines[number - 2].endswith("\\"):
            number -= 1
            text = lines[number - 1].strip().removesuffix("\\") + text
        command = text.split(";")[-1].strip()
        return None if not command or command.split()[0] in _BLOCK_ENDS else LastCommand(number, command)
    return None
