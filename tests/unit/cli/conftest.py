"""Commands called as `packtrain` calls them, without a process of their own."""

from __future__ import annotations

import sys

import pytest

from packtrain.cli.main import main
from packtrain.cli.ui.output import console, error_console


@pytest.fixture
def packtrain(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACKTRAIN_STORE", str(tmp_path / "store.db"))

    def packtrain(*arguments):
        """Exit code, standard output, standard error."""
        monkeypatch.setattr(sys, "argv", ["packtrain", *map(str, arguments)])
        console.cache_clear()  # it writes to the standard output of its time
        error_console.cache_clear()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    yield packtrain
    console.cache_clear()
    error_console.cache_clear()
