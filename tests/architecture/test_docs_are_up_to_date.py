"""The pages that are made from the code say what the code says, and links lead somewhere."""

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


def test_made_pages_are_as_made_now():
    """In a process of its own: commands remember how they were called first, and tell their help accordingly."""
    command = [sys.executable, PROJECT_ROOT / "docs" / "make.py", "--check"]
    stale = subprocess.run(command, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=True)
    assert stale.stdout == "", "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []
