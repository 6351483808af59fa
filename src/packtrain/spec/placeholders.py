"""Replace `{job}`, `{run}`, `{name}` and the keys of the matrix in text.

Only known keys in single braces are replaced, and never after a `$`: `${lr}`, `{{x}}` and `{print $1}` in a command are
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

BUILTIN_PLACEHOLDERS = ("job", "run", "name")
_PLACEHOLDER_PATTERN = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace the known placeholders in one pass, so braces in values are unchanged."""
    return _PLACEHOLDER_PATTERN.sub(lambda match: values.get(match.group(1), match.group()), text)
