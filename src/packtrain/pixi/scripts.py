"""The scripts in `bin` that start entry points of Python packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packtrain.pixi.prefix_replacement import shebang_line

_ENTRY_POINT = re.compile(r"([^=\[\]]+)=\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*)?")
_SCRIPT_SECTIONS = ("console_scripts", "gui_scripts")
_TEMPLATE = """\
{shebang}
# -*- coding: utf-8 -*-
import re
import sys

from {module} import {first_name}

if __name__ == '__main__':
\tsys.argv[0] = re.sub(r'(-script\\.pyw?|\\.exe)?$', '', sys.argv[0])
\tsys.exit({function}())
"""


def make_script(entry_point: str, interpreter: str) -> tuple[str, bytes]:
    """Return the name and the content of a script.

    Args:
        entry_point: `NAME = MODULE:FUNCTION`.
        interpreter: The path of the environment's Python.

    Raises:
        ValueError: It is not an entry point.
    """
    match = _ENTRY_POINT.fullmatch(entry_point.strip())
    if match is None:
        raise ValueError(f"{entry_point!r} is not an entry point of the form NAME = MODULE:FUNCTION")
    name, module, function = match.group(1).strip(), match.group(2), match.group(3)
    text = _TEMPLATE.format(
        shebang=shebang_line(interpreter), module=module, first_name=function.split(".")[0], function=function
    )
    return name, text.encode()


def parse_entry_points(text: str) -> Iterator[str]:
    """Yield the scripts of a wheel's `entry_points.txt`, each as `NAME = MODULE:FUNCTION`."""
    section = ""
    for raw_line in text.splitlines():
        line = raw_line.split("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif "=" in line and section in _SCRIPT_SECTIONS:
            yield line
