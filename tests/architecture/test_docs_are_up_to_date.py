"""Generated pages match the code, and links point to existing files."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import PROJECT_ROOT

PAGES = [
    *PROJECT_ROOT.glob("*.md"),
    *PROJECT_ROOT.glob("docs/**/*.md"),
    *PROJECT_ROOT.glob("src/packtrain/recipes/*/README.md"),
]


def test_generated_pages_are_current():
    """Run in a process of its own, because click caches help texts of earlier calls."""
    command = [sys.executable, PROJECT_ROOT / "docs" / "make.py", "--check"]
    result = subprocess.run(command, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=True)
    assert result.stdout == "", "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
def test_links(page):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local_links = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local_links if not (page.parent / link).exists()] == []
