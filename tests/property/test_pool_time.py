"""Whatever a pool's log tells of a decision: every second of it is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.state.pool_time import PhaseChange, PoolPhase, compute_pool_times

MARKS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(list(PoolPhase)[:-1]), st.integers(1, 3), st.booleans()), max_size=20
)


@given(MARKS, st.integers(0, 9))
def test_every_second_is_counted_once(drawn: list[tuple[int, PoolPhase, int, bool]], last: int) -> None:
    now, marks, placed = 100.0, {}, {}
    for place, (later, doing, start, begins) in enumerate(drawn):
        now += later
        away = doing in (PoolPhase.QUEUE, PoolPhase.HELD)
        marks[place] = PhaseChange(now, doing, 0 if away else start)
        if doing is PoolPhase.SLOT and begins:
            placed.setdefault(start, place)
    now += last
    marks[len(drawn)] = PhaseChange(now, PoolPhase.ENDED)
    found = compute_pool_times(100.0, sorted(marks.items()), placed)
    parts = [found.queue_s, found.held_s, found.wasted_transfer_s]
    parts += [seconds for stretch in found.slot_times.values() for seconds in (stretch.transfer_s, stretch.slot_s)]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == now - 100.0
    assert all(stretch.has_ended for stretch in found.slot_times.values())
