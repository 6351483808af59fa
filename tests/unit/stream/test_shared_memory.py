"""What passes through shared memory is what was given, whatever its shape and size."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain.stream.shared_memory import BufferCodec, SharedBatchMemory

_batches = st.recursive(
    st.lists(st.binary(max_size=40), max_size=5) | st.integers() | st.lists(st.text(max_size=3), max_size=3),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def _fill_in(value, view):
    view[:] = value


def _as_seen(view, about):
    return view


KINDS = {bytearray: BufferCodec(len, _fill_in, _as_seen)}  # found again without a copy, as tensors are


def _through(memory, batch, worker=0):
    return pickle.loads(pickle.dumps(memory.store_batch(batch, worker)))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_batches, st.integers(0, 300))
def test_batches_come_back_as_they_were(batch, size):
    memory = SharedBatchMemory(2, 3, size)
    for worker in (0, 1):
        assert _through(memory, batch, worker) == batch


def test_what_fits_does_not_go_through_the_pipe():
    memory = SharedBatchMemory(1, 2, 100_000)
    assert len(pickle.dumps(memory.store_batch(([b"x" * 50_000], [1]), 0))) < 300
    assert len(pickle.dumps(memory.store_batch(([b"x" * 150_000], [1]), 0))) > 150_000
    mixed = [b"x" * 1000, "text"]
    assert memory.store_batch(mixed, 0) is mixed


def _fill(memory, worker, pipe):
    for number in range(9):
        pipe.send(memory.lent([bytes([worker, number]) * 1000], worker))
        if number >= 1:
            pipe.recv()  # as torch does: one more when one was taken
    pipe.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_forked_workers_use_places_of_their_own(workers):
    context = multiprocessing.get_context("fork")
    memory = SharedBatchMemory(workers, 3, 2500)
    pipes, children = [], []
    for worker in range(workers):
        mine, other = context.Pipe()
        children.append(context.Process(target=_fill, args=(memory, worker, other)))
        children[-1].start()
        pipes.append(mine)
    for number in range(9):
        for worker, pipe in enumerate(pipes):
            assert pipe.recv() == [bytes([worker, number]) * 1000]
            if number >= 1:
                pipe.send(None)
    for child in children:
        child.join()


def test_a_place_is_used_again_when_nothing_of_it_is_used_any_more():
    memory = SharedBatchMemory(1, 2, 1000, KINDS)
    first = _through(memory, (bytearray(b"a" * 100), [b"for itself"], bytearray(b"b" * 50)))
    second = _through(memory, bytearray(b"c" * 200))
    third = bytearray(b"d")
    assert memory.store_batch(third, 0) is third  # no place is left
    kept = first[2]
    del first
    assert memory.store_batch(third, 0) is third
    del kept
    again = _through(memory, third)
    assert isinstance(again, memoryview)
    assert (again, second) == (third, b"c" * 200)


def test_more_things_than_a_place_has_flags():
    memory = SharedBatchMemory(1, 1, 10_000, KINDS)
    batch = [bytearray([number]) * 10 for number in range(40)]
    found = _through(memory, batch)
    assert found == batch
    assert [type(one) for one in found] == [memoryview] * 16 + [bytearray] * 24


def test_what_a_forked_process_lets_go_stays_lent():
    memory, context = SharedBatchMemory(1, 1, 1000, KINDS), multiprocessing.get_context("fork")
    held = [_through(memory, bytearray(b"x" * 100))]
    child = context.Process(target=held.clear)
    child.start()
    child.join()
    other = bytearray(b"y")
    assert memory.store_batch(other, 0) is other
    held.clear()
    assert memory.store_batch(other, 0) is not other
