"""Text reaches terminals through consoles of one kind, which make it harmless; see `views.terminal`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import packtrain

SOURCES = Path(packtrain.__file__).parent


def source_lines(*packages: str) -> list[tuple[str, str]]:
    files = [path for package in packages for path in sorted((SOURCES / package).rglob("*.py"))]
    return [
        (f"{path.relative_to(SOURCES)}:{number}", line)
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]


@pytest.mark.parametrize("pattern", [r"(?<!\w)Console\(", r"markup=True", r"from_markup", r"emoji=True", r"\[/\]"])
def test_consoles_are_created_in_one_place(pattern: str):
    found = [place for place, line in source_lines("cli", "views", "runs", "report") if re.search(pattern, line)]
    assert [place for place in found if not place.startswith("views/terminal.py")] == []
