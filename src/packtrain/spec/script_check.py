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
_BLOCK_ENDS = ("fi", "done", "esac", "}", ")", ";;")


@dataclass(frozen=True)
class MaskingCommand:
    """The last command of a script, whose exit code hides failures of earlier commands."""

    line: int
    command: str


def find_masking_command(script: str) -> MaskingCommand | None:
    """Return the last command of a script if it succeeds regardless of the commands before it."""
    shebang = _SHEBANG.match(script)
    if not shebang or _ERREXIT.search(script) or re.search(r"(?:^|\s)-[a-z]*e", shebang.group(1)):
        return None
    last = _last_command(script)
    if last is None or "||" in last.command or "&&" in last.command:
        return None
    argv = last.command.split()
    is_masking = argv[0].rpartition("/")[2] in _NON_FAILING_COMMANDS or argv == ["exit", "0"]
    return last if is_masking else None


def _last_command(script: str) -> MaskingCommand | None:
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
        return None if not command or command.split()[0] in _BLOCK_ENDS else MaskingCommand(number, command)
    return None
