"""A step's `if`: what stands inside bash's [[ ]]."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

# bash ends with 0 on some syntax errors inside [[ ]] (seen with 5.2), so the verdict has codes of its own.
STATUS_TRUE, STATUS_FALSE = 100, 101


def condition_argv(condition: str, variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """What evaluates it: a program that ends with HOLDS or FAILS, else it is invalid. None: there is no bash."""
    bash = shutil.which("bash", path=variables.get("PATH"))
    return (bash, "-c", f"if [[ {condition} ]]; then exit {STATUS_TRUE}; fi; exit {STATUS_FALSE}") if bash else None
