"""Call commands through `main`, in this process."""

from __future__ import annotations

import sys

import pytest

from packtrain.cli.main import main
from packtrain.cli.ui.output import console, error_console


@pytest.fixture
def run_packtrain(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACKTRAIN_STORE", str(tmp_path / "store.db"))

    def run(*arguments):
        """Return exit code, standard output and standard error."""
        monkeypatch.setattr(sys, "argv", ["packtrain", *map(str, arguments)])
        console.cache_clear()  # it keeps the standard output it was created with
        error_console.cache_clear()
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        return exit_info.value.code, out, err

    yield run
    console.cache_clear()
    error_console.cache_clear()
