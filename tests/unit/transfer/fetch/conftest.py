"""The folder that servers serve, and the target of downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fetches import DATA, FILENAME


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    served = tmp_path / "served"
    served.mkdir()
    (served / FILENAME).write_bytes(DATA)
    return served


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "sandbox" / "input" / FILENAME
