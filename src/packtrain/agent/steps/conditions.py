"""A step's `if`: what stands inside bash's [[ ]]."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

# bash ends with 0 on some syntax errors inside [[ ]] (seen with 5.2), so the verdict has codes of its own.
HOLDS, FAILS = 100, 101


def argv(condition: str, variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """What evaluates it: a program that ends with HOLDS or FAILS, else it is invalid. None: there is no bash."""
    bash = shutil.which("bash", path=variables.get("PATH"))
    return (bash, "-c", f"if [[ {condition} ]]; then exit {HOLDS}; fi; exit {FAILS}") if bash else None
