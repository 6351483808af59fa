"""A claim is made once, and locked while its maker lives."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor

from packtrain.plan.claim import hand_on, take


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


def test_one_that_was_handed_on_is_inherited_once_its_holder_is_gone(tmp_path):
    first = take(tmp_path / "claim")
    hand_on(first)
    assert take(tmp_path / "claim") is None, "it still lives"
    os.close(first)
    second = take(tmp_path / "claim")
    assert second is not None
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert take(tmp_path / "claim") is None, "there is one heir"
    os.close(second)
    assert take(tmp_path / "claim") is None, "that did not hand it on"


def test_one_after_the_other_may_hand_it_on(tmp_path):
    for _ in range(3):
        claim = take(tmp_path / "claim")
        hand_on(claim)
        os.close(claim)
    assert (tmp_path / "claim").read_text().count("handed on") == 1


def test_of_many_heirs_one_wins(tmp_path):
    claim = take(tmp_path / "claim")
    hand_on(claim)
    os.close(claim)
    with ThreadPoolExecutor(16) as threads:
        won = [heir for heir in threads.map(take, [tmp_path / "claim"] * 64) if heir is not None]
    assert len(won) == 1
    os.close(won[0])


def _lockable(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
