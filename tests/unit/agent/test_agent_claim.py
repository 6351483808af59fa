"""A claim is made once, and locked while its maker lives."""

import fcntl
import os

from packtrain.agent.claim import take


def test_the_first_gets_it_the_second_does_not(tmp_path):
    claim = tmp_path / "attempt" / "claim"
    first = take(claim)
    assert first is not None
    before = claim.read_bytes()
    assert take(claim) is None
    assert claim.read_bytes() == before
    os.close(first)


def test_it_names_the_process(tmp_path):
    first = take(tmp_path / "claim")
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert os.listdir(tmp_path) == ["claim"]
    os.close(first)


def test_it_is_locked_until_closed(tmp_path):
    first = take(tmp_path / "claim")
    with open(tmp_path / "claim") as other:
        assert not _lockable(other)
        os.close(first)
        assert _lockable(other)


def _lockable(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
