"""A claim is made once, and locked while its maker lives."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor

from packtrain.plan.claim import acquire_claim, hand_over_claim


def test_the_first_gets_it_the_second_does_not(tmp_path):
    claim = tmp_path / "attempt" / "claim"
    first = acquire_claim(claim)
    assert first is not None
    before = claim.read_bytes()
    assert acquire_claim(claim) is None
    assert claim.read_bytes() == before
    os.close(first)


def test_it_names_the_process(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert os.listdir(tmp_path) == ["claim"]
    os.close(first)


def test_it_is_locked_until_closed(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    with open(tmp_path / "claim") as other:
        assert not _lockable(other)
        os.close(first)
        assert _lockable(other)


def test_one_that_was_handed_on_is_inherited_once_its_holder_is_gone(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    hand_over_claim(first)
    assert acquire_claim(tmp_path / "claim") is None, "it still lives"
    os.close(first)
    second = acquire_claim(tmp_path / "claim")
    assert second is not None
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert acquire_claim(tmp_path / "claim") is None, "there is one heir"
    os.close(second)
    assert acquire_claim(tmp_path / "claim") is None, "that did not hand it on"


def test_one_after_the_other_may_hand_it_on(tmp_path):
    for _ in range(3):
        claim = acquire_claim(tmp_path / "claim")
        hand_over_claim(claim)
        os.close(claim)
    assert (tmp_path / "claim").read_text().count("handed on") == 1


def test_of_many_heirs_one_wins(tmp_path):
    claim = acquire_claim(tmp_path / "claim")
    hand_over_claim(claim)
    os.close(claim)
    with ThreadPoolExecutor(16) as threads:
        won = [heir for heir in threads.map(acquire_claim, [tmp_path / "claim"] * 64) if heir is not None]
    assert len(won) == 1
    os.close(won[0])


def _lockable(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
