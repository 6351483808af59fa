"""Tests of the short TMPDIR."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packtrain.agent.steps.short_tmpdir import short_tmpdir

LONG_TMPDIR = "/" + "d" * 75  # one byte too long for the path of a torch socket


def test_long_tmpdir_gets_a_link(tmp_path):
    with short_tmpdir({"TMPDIR": LONG_TMPDIR}, tmp_path) as variables:
        link = Path(variables["TMPDIR"])
        assert os.path.samefile(link, tmp_path) and len(str(link)) < 30
    assert not os.path.lexists(link)
    assert tmp_path.is_dir()


@pytest.mark.parametrize("environ", [{}, {"TMPDIR": LONG_TMPDIR[:-1]}])
def test_short_tmpdir_is_unchanged(environ, tmp_path):
    with short_tmpdir(environ, tmp_path) as variables:
        assert variables == {}


def test_without_symlinks(tmp_path):
    with short_tmpdir({"TMPDIR": LONG_TMPDIR}, tmp_path, tmp_path / "missing") as variables:
        assert variables == {"TMPDIR": str(tmp_path / "missing")}
