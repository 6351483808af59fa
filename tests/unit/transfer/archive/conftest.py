"""Every test here is about archives on the disk and archives on their way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.archives import WAY, WAYS


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The archive stands beside the folder, and beside both a witness that must stay alone."""
    (tmp_path / "witness").write_text("untouched")
    return tmp_path


@pytest.fixture(params=WAYS, autouse=True)
def way(request) -> str:
    WAY[0] = WAYS[request.param]
    return request.param
