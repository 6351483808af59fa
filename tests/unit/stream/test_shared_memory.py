"""Tests of the shared memory through which workers return batches."""

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


def write_buffer(value, view):
    view[:] = value


def read_buffer(view, metadata):
    return view


CODECS = {bytearray: BufferCodec(len, write_buffer, read_buffer)}  # read without a copy, like tensors


def round_trip(memory, batch, worker=0):
    return pickle.loads(pickle.dumps(memory.store_batch(batch, worker)))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_batches, st.integers(0, 300))
def test_batches_round_trip(batch, size):
    memory = SharedBatchMemory(2, 3, size)
    for worker in (0, 1):
        assert round_trip(memory, batch, worker) == batch


def test_batches_that_fit_are_not_pickled():
    memory = SharedBatchMemory(1, 2, 100_000)
    assert len(pickle.dumps(memory.store_batch(([b"x" * 50_000], [1]), 0))) < 300
    assert len(pickle.dumps(memory.store_batch(([b"x" * 150_000], [1]), 0))) > 150_000
    mixed = [b"x" * 1000, "text"]
    assert memory.store_batch(mixed, 0) is mixed


def send_batches(memory, worker, pipe):
    for number in range(9):
        pipe.send(memory.store_batch([bytes([worker, number]) * 1000], worker))
        if number >= 1:
            pipe.recv()  # like torch: one more batch when one was taken
    pipe.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_forked_workers_use_their_own_slots(workers):
    context = multiprocessing.get_context("fork")
    memory = SharedBatchMemory(workers, 3, 2500)
    pipes, children = [], []
    for worker in range(workers):
        mine, other = context.Pipe()
        children.append(context.Process(target=send_batches, args=(memory, worker, other)))
        children[-1].start()
        pipes.append(mine)
    for number in range(9):
        for worker, pipe in enumerate(pipes):
            assert pipe.recv() == [bytes([worker, number]) * 1000]
            if number >= 1:
                pipe.send(None)
    for child in children:
        child.join()


def test_slot_is_reused_when_its_values_are_freed():
    memory = SharedBatchMemory(1, 2, 1000, CODECS)
    first = round_trip(memory, (bytearray(b"a" * 100), [b"for itself"], bytearray(b"b" * 50)))
    second = round_trip(memory, bytearray(b"c" * 200))
    third = bytearray(b"d")
    assert memory.store_batch(third, 0) is third  # no slot is free
    last_value = first[2]
    del first
    assert memory.store_batch(third, 0) is third
    del last_value
    again = round_trip(memory, third)
    assert isinstance(again, memoryview)
    assert (again, second) == (third, b"c" * 200)


def test_more_values_than_flags():
    memory = SharedBatchMemory(1, 1, 10_000, CODECS)
    batch = [bytearray([number]) * 10 for number in range(40)]
    loaded = round_trip(memory, batch)
    assert loaded == batch
    assert [type(value) for value in loaded] == [memoryview] * 16 + [bytearray] * 24


def test_forked_process_does_not_free_values():
    memory, context = SharedBatchMemory(1, 1, 1000, CODECS), multiprocessing.get_context("fork")
    held = [round_trip(memory, bytearray(b"x" * 100))]
    child = context.Process(target=held.clear)
    child.start()
    child.join()
    other = bytearray(b"y")
    assert memory.store_batch(other, 0) is other
    held.clear()
    assert memory.store_batch(other, 0) is not other
