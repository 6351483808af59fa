"""Whatever a pool's log tells of a decision: every second of it is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.state.pool_time import Doing, Mark, times_between

MARKS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(list(Doing)[:-1]), st.integers(1, 3), st.booleans()), max_size=20
)


@given(MARKS, st.integers(0, 9))
def test_every_second_is_counted_once(drawn: list[tuple[int, Doing, int, bool]], last: int) -> None:
    now, marks, placed = 100.0, {}, {}
    for place, (later, doing, start, begins) in enumerate(drawn):
        now += later
        away = doing in (Doing.QUEUE, Doing.HELD)
        marks[place] = Mark(now, doing, 0 if away else start)
        if doing is Doing.SLOT and begins:
            placed.setdefault(start, place)
    now += last
    marks[len(drawn)] = Mark(now, Doing.OVER)
    found = times_between(100.0, sorted(marks.items()), placed)
    parts = [found.queue, found.held, found.lost]
    parts += [seconds for stretch in found.starts.values() for seconds in (stretch.transfer, stretch.slot)]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == now - 100.0
    assert all(stretch.over for stretch in found.starts.values())
