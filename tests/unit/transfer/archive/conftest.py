"""Run every test with an archive in a file and with one that is unpacked while it downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.archives import CURRENT_METHOD, UNPACK_METHODS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the archive, its target `into`, and a file `witness` that must not change."""
    (tmp_path / "witness").write_text("untouched")
    return tmp_path


@pytest.fixture(params=UNPACK_METHODS, autouse=True)
def unpack_method(request) -> str:
    CURRENT_METHOD[0] = UNPACK_METHODS[request.param]
    return request.param
