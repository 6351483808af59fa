"""Every test here is about archives on the disk and archives on their way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.archives import CURRENT_METHOD, UNPACK_METHODS


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The archive stands beside the folder, and beside both a witness that must stay alone."""
    (tmp_path / "witness").write_text("untouched")
    return tmp_path


@pytest.fixture(params=UNPACK_METHODS, autouse=True)
def way(request) -> str:
    CURRENT_METHOD[0] = UNPACK_METHODS[request.param]
    return request.param
