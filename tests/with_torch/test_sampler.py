"""Tests of ResumableBatchSampler: every sample once per epoch, after any interruption, with any number of ranks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.torch import CheckpointError, ResumableBatchSampler

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


@st.composite
def sampler_settings(draw):
    """Settings that can be split over the ranks."""
    world_size = draw(st.integers(1, 5))
    batch_size = draw(st.integers(2 * world_size, 40))
    return draw(st.integers(batch_size, 300)), batch_size, draw(st.integers(0, 2**40)), world_size


@settings(max_examples=100, deadline=None)
@given(sampler_settings(), st.integers(1, 50), st.data())
def test_each_sample_once_with_any_number_of_ranks(sampler_settings, epoch, data):
    num_samples, batch_size, seed, world_size = sampler_settings
    samplers = [
        ResumableBatchSampler(num_samples, batch_size, seed=seed, rank_and_world_size=(rank, world_size))
        for rank in range(world_size)
    ]
    batches = [torch.cat(shares) for shares in zip(*(sampler.batches(epoch) for sampler in samplers), strict=True)]
    assert torch.cat(batches).sort().values.tolist() == list(range(num_samples))
    assert [len(batch) for batch in batches] == [samplers[0].samples_in_batch(n) for n in range(len(samplers[0]))]
    assert max(len(batch) for batch in batches) <= batch_size

    single = ResumableBatchSampler(num_samples, batch_size, seed=seed, rank_and_world_size=(0, 1))
    first = data.draw(st.integers(0, len(batches)))
    rest = list(single.batches(epoch, first))
    assert len(rest) == len(batches) - first
    assert all(torch.equal(batch, other) for batch, other in zip(rest, batches[first:], strict=True))


def test_epochs_and_seeds_differ():
    def first(seed, epoch):
        return next(iter(ResumableBatchSampler(1000, 100, seed=seed).batches(epoch))).tolist()

    assert first(1, 1) == first(1, 1)
    assert len({tuple(first(seed, epoch)) for seed in (1, 2) for epoch in (1, 2)}) == 4
    assert next(iter(ResumableBatchSampler(10, 4, shuffle=False).batches(3))).tolist() == [0, 1, 2, 3]


def test_generator_of_each_batch_differs():
    def draw(rank, epoch, batch):
        sampler = ResumableBatchSampler(100, 10, seed=1, rank_and_world_size=(rank, 2))
        return torch.rand((), generator=sampler.generator(epoch, batch)).item()

    assert draw(0, 1, 1) == draw(0, 1, 1)
    assert len({draw(rank, epoch, batch) for rank in (0, 1) for epoch in (1, 2) for batch in (0, 1)}) == 8


@pytest.mark.parametrize(("num_samples", "batch_size", "world_size"), [(0, 4, 1), (10, 0, 1), (10, 2, 3), (3, 8, 4)])
def test_invalid_batch_size(num_samples, batch_size, world_size):
    with pytest.raises(CheckpointError, match=f"{num_samples} samples in batches of {batch_size} cannot be split"):
        ResumableBatchSampler(num_samples, batch_size, rank_and_world_size=(0, world_size))
