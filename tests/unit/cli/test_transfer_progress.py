"""Transfers in the foreground: plain lines, and a clean stop on signals."""

from __future__ import annotations

import os
import signal

import click
import pytest

from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.errors import FailedError, UsageError
from packtrain.transfer.progress import SourceRate, TransferSnapshot


def test_plain_lines(capsys):
    snapshot = TransferSnapshot(500, 1000, 100.0, (SourceRate("host", 100.0, 2, False),), 2)
    for line_interval_s in (10.0, 0.0):
        with TransferProgress(quiet=False, line_interval_s=line_interval_s) as progress:
            progress.start("fetch", "data.tar", 1000)
            progress.on_snapshot(snapshot)
    assert capsys.readouterr().out == "data.tar: fetch 500 B of 1 kB · 50% · 100 B/s · 5 s left · from host 100 B/s\n"


def test_quiet(capsys):
    with TransferProgress(quiet=True, line_interval_s=0.0) as progress:
        progress.start("fetch", "data.tar")
        progress.on_progress(100, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_cancels(capsys, number):
    before = signal.getsignal(number)
    with pytest.raises(click.exceptions.Exit) as caught, cancel_on_signal("run it again") as token:
        token.check_cancelled()
        os.kill(os.getpid(), number)
        assert token.is_cancelled
        token.check_cancelled()
    assert caught.value.exit_code == 130
    assert "stopped; run it again" in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_second_signal_interrupts():
    with pytest.raises(KeyboardInterrupt), cancel_on_signal("") as token:
        os.kill(os.getpid(), signal.SIGINT)
        assert token.is_cancelled
        os.kill(os.getpid(), signal.SIGINT)


def test_failures_propagate():
    with pytest.raises(FailedError, match="gone"), cancel_on_signal(""):
        raise FailedError("object_missing", "gone")
    with pytest.raises(OSError, match="odd"), cancel_on_signal(""):
        raise OSError("odd")


def test_unusable_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="nothing cannot be used: No such file"), cancel_on_signal(""):
        (tmp_path / "nothing").read_bytes()
