"""Is it the processor that limits reading, or waiting?"""

from __future__ import annotations

from packtrain.stream.cpu_bound import CpuBoundDetector

QUICK, CROWDED, FAR = (0.002, 0.003), (0.002, 0.012), (0.002, 0.3)  # of the processor, and all in all


def after(*pieces: tuple[float, float], here: bool = False) -> bool:
    effort = CpuBoundDetector(here)
    for cpu_s, seconds in pieces:
        effort.record_read(cpu_s, seconds)
    return effort.is_cpu_bound


def test_a_few_pieces_tell():
    assert not after(*[QUICK] * 3)
    assert after(*[QUICK] * 4)
    assert not after(*[FAR] * 20)


def test_a_server_on_this_machine_is_taken_for_quick_until_it_turns_out_to_wait_itself():
    assert after(here=True)
    assert after(*[CROWDED] * 50, here=True)
    assert not after(*[CROWDED] * 50)
    assert not after(*[FAR] * 4, here=True)


def test_a_moment_in_which_others_have_the_processor_changes_nothing():
    """As when programs decode beside it."""
    assert after(*[QUICK] * 20, *[CROWDED] * 4, *[QUICK] * 4)


def test_a_network_that_becomes_slow_is_seen_at_once():
    assert not after(*[QUICK] * 50, FAR)


def test_one_that_becomes_quick_is_seen_in_time():
    assert after(*[FAR] * 10, *[QUICK] * 150)
