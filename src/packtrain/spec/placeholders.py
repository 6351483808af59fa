"""`{job}`, `{run}`, `{name}` and the keys of the matrix, filled into texts.

Only known keys in single braces are replaced, and never behind a `$`: `${lr}`, `{{x}}` and `{print $1}`
in a command stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

BUILTIN_PLACEHOLDERS = ("job", "run", "name")
_PLACEHOLDER_PATTERN = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace the known fields; once, so a value with braces stays as it is."""
    return _PLACEHOLDER_PATTERN.sub(lambda found: values.get(found.group(1), found.group()), text)
