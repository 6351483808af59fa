"""Tests of the claim file: it is created once and locked while its holder lives."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor

from packtrain.plan.claim import acquire_claim, hand_over_claim


def test_only_first_process_gets_claim(tmp_path):
    claim = tmp_path / "attempt" / "claim"
    first = acquire_claim(claim)
    assert first is not None
    before = claim.read_bytes()
    assert acquire_claim(claim) is None
    assert claim.read_bytes() == before
    os.close(first)


def test_claim_names_its_holder(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert os.listdir(tmp_path) == ["claim"]
    os.close(first)


def test_claim_is_locked_until_closed(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    with open(tmp_path / "claim") as other:
        assert not _can_lock(other)
        os.close(first)
        assert _can_lock(other)


def test_handed_over_claim_is_taken_after_holder_ended(tmp_path):
    first = acquire_claim(tmp_path / "claim")
    hand_over_claim(first)
    assert acquire_claim(tmp_path / "claim") is None, "the holder still lives"
    os.close(first)
    second = acquire_claim(tmp_path / "claim")
    assert second is not None
    assert (tmp_path / "claim").read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    assert acquire_claim(tmp_path / "claim") is None, "there is only one successor"
    os.close(second)
    assert acquire_claim(tmp_path / "claim") is None, "the second holder did not hand it over"


def test_claim_is_handed_over_repeatedly(tmp_path):
    for _ in range(3):
        claim = acquire_claim(tmp_path / "claim")
        hand_over_claim(claim)
        os.close(claim)
    assert (tmp_path / "claim").read_text().count("handed over") == 1


def test_only_one_successor_wins(tmp_path):
    claim = acquire_claim(tmp_path / "claim")
    hand_over_claim(claim)
    os.close(claim)
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(acquire_claim, [tmp_path / "claim"] * 64))
    won = [claim_fd for claim_fd in results if claim_fd is not None]
    assert len(won) == 1
    os.close(won[0])


def _can_lock(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
