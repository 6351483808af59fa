"""packtrain.torch.Order: every sample once an epoch, wherever it was interrupted, on any number of processes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.torch import CheckpointError, ResumableBatchSampler

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


@st.composite
def orders(draw):
    """Settings that can be split over their processes."""
    world = draw(st.integers(1, 5))
    batch_size = draw(st.integers(2 * world, 40))
    return draw(st.integers(batch_size, 300)), batch_size, draw(st.integers(0, 2**40)), world


@settings(max_examples=100, deadline=None)
@given(orders(), st.integers(1, 50), st.data())
def test_each_sample_once_on_every_number_of_processes(given_, epoch, data):
    samples, batch_size, seed, world = given_
    ranks = [
        ResumableBatchSampler(samples, batch_size, seed=seed, rank_and_world_size=(n, world)) for n in range(world)
    ]
    batches = [torch.cat(shares) for shares in zip(*(order.batches(epoch) for order in ranks), strict=True)]
    assert torch.cat(batches).sort().values.tolist() == list(range(samples))
    assert [len(batch) for batch in batches] == [ranks[0].samples_in_batch(n) for n in range(len(ranks[0]))]
    assert max(len(batch) for batch in batches) <= batch_size

    alone = ResumableBatchSampler(samples, batch_size, seed=seed, rank_and_world_size=(0, 1))
    first = data.draw(st.integers(0, len(batches)))
    rest = list(alone.batches(epoch, first))
    assert len(rest) == len(batches) - first
    assert all(torch.equal(one, other) for one, other in zip(rest, batches[first:], strict=True))


def test_epochs_and_seeds_differ():
    def first(seed, epoch):
        return next(iter(ResumableBatchSampler(1000, 100, seed=seed).batches(epoch))).tolist()

    assert first(1, 1) == first(1, 1)
    assert len({tuple(first(seed, epoch)) for seed in (1, 2) for epoch in (1, 2)}) == 4
    assert next(iter(ResumableBatchSampler(10, 4, shuffle=False).batches(3))).tolist() == [0, 1, 2, 3]


def test_random_numbers_of_a_batch_are_its_own():
    def draw(rank, epoch, batch):
        order = ResumableBatchSampler(100, 10, seed=1, rank_and_world_size=(rank, 2))
        return torch.rand((), generator=order.generator(epoch, batch)).item()

    assert draw(0, 1, 1) == draw(0, 1, 1)
    assert len({draw(rank, epoch, batch) for rank in (0, 1) for epoch in (1, 2) for batch in (0, 1)}) == 8


@pytest.mark.parametrize(("samples", "batch_size", "world"), [(0, 4, 1), (10, 0, 1), (10, 2, 3), (3, 8, 4)])
def test_what_cannot_be_split_is_refused(samples, batch_size, world):
    with pytest.raises(CheckpointError, match=f"{samples} samples in batches of {batch_size} cannot be split"):
        ResumableBatchSampler(samples, batch_size, rank_and_world_size=(0, world))
