"""Sockets of programs find room however deep the scratch of a pool lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packtrain.agent.steps import short_tmpdir as module
from packtrain.agent.steps.short_tmpdir import short_tmpdir

DEEP = "/" + "d" * 75  # a socket of torch's there has a path of 108 bytes


def test_a_deep_one_gets_a_short_name_for_as_long_as_it_is_needed(tmp_path):
    with short_tmpdir({"TMPDIR": DEEP}, tmp_path) as variables:
        link = Path(variables["TMPDIR"])
        assert os.path.samefile(link, tmp_path) and len(str(link)) < 30
    assert not os.path.lexists(link)
    assert tmp_path.is_dir()


@pytest.mark.parametrize("environ", [{}, {"TMPDIR": DEEP[:-1]}])
def test_others_stay_as_they_are(environ, tmp_path):
    with short_tmpdir(environ, tmp_path) as variables:
        assert variables == {}


def test_without_links_the_short_folder_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SHORT_ROOT", tmp_path / "missing")
    with short_tmpdir({"TMPDIR": DEEP}, tmp_path) as variables:
        assert variables == {"TMPDIR": str(tmp_path / "missing")}
