"""Transfers in the foreground: plain lines, and signals that end the work in order."""

from __future__ import annotations

import os
import signal

import click
import pytest

from packtrain.cli.ui import transfer_progress
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.errors import FailedError, UsageError
from packtrain.transfer.progress import SourceRate, TransferSnapshot


def test_plain_lines_now_and_then(capsys, monkeypatch):
    with TransferProgress(quiet=False) as follower:
        follower.start("fetch", "data.tar", 1000)
        follower.on_progress(100, 1000)
        assert capsys.readouterr().out == ""
        monkeypatch.setattr(transfer_progress, "_LINE_EVERY_S", 0.0)
        follower.start("fetch", "data.tar", 1000)
        follower.on_snapshot(TransferSnapshot(500, 1000, 100.0, (SourceRate("host", 100.0, 2, False),), 2))
    assert (
        capsys.readouterr().out == "data.tar: fetch 500 B of 1.0 kB · 50% · 100 B/s · 5.0 s left · from host 100 B/s\n"
    )


def test_quiet_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(transfer_progress, "_LINE_EVERY_S", 0.0)
    with TransferProgress(quiet=True) as follower:
        follower.start("fetch", "data.tar")
        follower.on_progress(100, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work_at_its_next_step(capsys, number):
    before = signal.getsignal(number)
    with pytest.raises(click.exceptions.Exit) as caught, cancel_on_signal("it goes on") as stop:
        stop.check_cancelled()
        os.kill(os.getpid(), number)
        assert stop.is_cancelled
        stop.check_cancelled()
    assert caught.value.exit_code == 130
    assert "stopped; it goes on" in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_it_at_once():
    with pytest.raises(KeyboardInterrupt), cancel_on_signal("") as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_cancelled
        os.kill(os.getpid(), signal.SIGINT)


def test_failures_pass_through():
    with pytest.raises(FailedError, match="gone"), cancel_on_signal(""):
        raise FailedError("object_missing", "gone")
    with pytest.raises(OSError, match="odd"), cancel_on_signal(""):
        raise OSError("odd")


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(UsageError, match="nothing cannot be used: No such file"), cancel_on_signal(""):
        (tmp_path / "nothing").read_bytes()
