"""For any pool log, every second of an attempt is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.state.pool_time import PhaseChange, PoolPhase, compute_pool_times

CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(list(PoolPhase)[:-1]), st.integers(1, 3), st.booleans()), max_size=20
)


@given(CHANGES, st.integers(0, 9))
def test_every_second_is_counted_once(generated: list[tuple[int, PoolPhase, int, bool]], last_delay_s: int) -> None:
    now, changes, start_positions = 100.0, {}, {}
    for position, (delay_s, phase, number, is_start) in enumerate(generated):
        now += delay_s
        has_no_slot = phase in (PoolPhase.QUEUE, PoolPhase.HELD)
        changes[position] = PhaseChange(now, phase, 0 if has_no_slot else number)
        if phase is PoolPhase.SLOT and is_start:
            start_positions.setdefault(number, position)
    now += last_delay_s
    changes[len(generated)] = PhaseChange(now, PoolPhase.ENDED)
    times = compute_pool_times(100.0, sorted(changes.items()), start_positions)
    parts = [times.queue_s, times.held_s, times.wasted_transfer_s]
    parts += [
        seconds for slot_time in times.slot_times.values() for seconds in (slot_time.transfer_s, slot_time.slot_s)
    ]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == now - 100.0
    assert all(slot_time.has_ended for slot_time in times.slot_times.values())
