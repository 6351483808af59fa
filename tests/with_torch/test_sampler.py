"""Tests of ResumableBatchSampler: every sample once per epoch, after any interruption, with any number of processes."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from packtrain.errors import UsageError
from packtrain.torch import Checkpoint, CheckpointError, ResumableBatchSampler

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


@st.composite
def sampler_settings(draw):
    """Settings that can be split over the processes."""
    world_size, batch_size = draw(st.integers(1, 5)), draw(st.integers(2, 12))
    num_samples = draw(st.integers(batch_size * world_size, 300))
    return num_samples, batch_size, world_size, {"seed": draw(st.integers(0, 2**40)), "drop_last": draw(st.booleans())}


def epoch_batches(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


@settings(max_examples=100, deadline=None)
@given(sampler_settings(), st.integers(0, 50), st.data())
def test_each_sample_once_with_any_number_of_processes(sampler_settings, epoch, data):
    num_samples, batch_size, world_size, options = sampler_settings
    samplers = [
        ResumableBatchSampler(num_samples, batch_size, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    shares = [epoch_batches(sampler, epoch) for sampler in samplers]
    assert all(1 <= len(share) <= batch_size for batches in shares for share in batches)
    batches = [list(chain(*shares_of_batch)) for shares_of_batch in zip(*shares, strict=True)]
    assert [len(batch) for batch in batches] == [samplers[0].samples_in_batch(n) for n in range(len(samplers[0]))]
    seen = sorted(number for batch in batches for number in batch)
    if options["drop_last"]:
        assert len(set(seen)) == len(seen) == num_samples - num_samples % (batch_size * world_size)
    else:
        assert seen == list(range(num_samples))

    done = data.draw(st.integers(0, len(batches)))
    single = ResumableBatchSampler(num_samples, batch_size * world_size, rank=0, world_size=1, **options)
    single.load_state_dict({**samplers[0].state_dict(), "batch": done})
    assert (single.epoch, single.first_batch) == (epoch, done)
    assert epoch_batches(single, epoch) == batches[done:]
    assert epoch_batches(single, epoch) == batches, "the position is used once"


def test_epochs_and_seeds_differ():
    def first(seed, epoch):
        return tuple(epoch_batches(ResumableBatchSampler(1000, 100, seed=seed), epoch)[0])

    assert first(1, 1) == first(1, 1)
    assert len({first(seed, epoch) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert epoch_batches(ResumableBatchSampler(10, 4, shuffle=False), 3)[0] == [0, 1, 2, 3]


def test_generator_of_each_batch_differs():
    def draw(rank, epoch, batch):
        sampler = ResumableBatchSampler(100, 10, seed=1, rank=rank, world_size=2)
        return torch.rand((), generator=sampler.generator(epoch, batch)).item()

    assert draw(0, 1, 1) == draw(0, 1, 1)
    assert len({draw(rank, epoch, batch) for rank in (0, 1) for epoch in (0, 1) for batch in (0, 1)}) == 8


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "world_size", "drop_last"),
    [(0, 4, 1, False), (10, 0, 1, False), (10, 1, 3, False), (3, 2, 4, False), (7, 4, 2, True)],
)
def test_invalid_batch_size(num_samples, batch_size, world_size, drop_last):
    with pytest.raises(UsageError, match=f"{num_samples} samples in batches of {batch_size} cannot be split"):
        ResumableBatchSampler(num_samples, batch_size, drop_last=drop_last, rank=0, world_size=world_size)


@pytest.mark.parametrize(
    ("position", "message"),
    [({"rank": 0}, "both"), ({"world_size": 2}, "both"), ({"rank": 2, "world_size": 2}, "rank must be from 0 to 1")],
)
def test_invalid_rank(position, message):
    with pytest.raises(UsageError, match=message):
        ResumableBatchSampler(100, 10, **position)


def test_several_processes_need_a_process_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"2 processes \(WORLD_SIZE\), but no process group yet"):
        ResumableBatchSampler(100, 10)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data_loader_resumes_exactly(tmp_path, monkeypatch, num_workers):
    """Workers draw batches in advance, and those that the training did not receive are not skipped."""
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    dataset = TensorDataset(torch.arange(100.0))

    def train(max_steps):
        """Train three epochs, or until the last step. Return the samples of each step, and the weights."""
        torch.manual_seed(1)
        sampler = ResumableBatchSampler(dataset, batch_size=7, seed=3)
        assert isinstance(sampler, Sampler)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=num_workers, generator=torch.Generator())
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        seen = []
        with Checkpoint("c.pt", model=model, optimizer=optimizer, sampler=sampler) as ckpt:
            start = ckpt.restore()
            for epoch in range(start.epoch, 3):
                sampler.set_epoch(epoch)
                for batch, (numbers,) in enumerate(loader, sampler.first_batch + 1):
                    optimizer.zero_grad()
                    model(numbers[:, None]).pow(2).mean().backward()
                    optimizer.step()
                    seen.append(numbers.tolist())
                    ckpt.save(epoch=epoch, batch=batch, step=start.step + len(seen))
                    if len(seen) == max_steps:
                        return seen, model[0].weight.tolist()
                ckpt.save(epoch=epoch + 1, step=start.step + len(seen))
        return seen, model[0].weight.tolist()

    parts = [train(max_steps) for max_steps in (4, 11, 8, 100)]  # the second one ends with an epoch
    for path in tmp_path.iterdir():
        path.unlink()
    seen, weights = train(100)
    assert [batch for part, _ in parts for batch in part] == seen and len(seen) == 45
    assert parts[-1][1] == weights


def test_own_checkpoint_without_workers():
    sampler = ResumableBatchSampler(100, 10, seed=3)
    loader = DataLoader(range(100), batch_sampler=sampler)
    batches = [batch.tolist() for _, batch in zip(range(4), loader, strict=False)]
    resumed = ResumableBatchSampler(100, 10, seed=3)
    resumed.load_state_dict(sampler.state_dict())
    batches += [batch.tolist() for batch in DataLoader(range(100), batch_sampler=resumed)]
    assert batches == list(ResumableBatchSampler(100, 10, seed=3))
    with pytest.raises(CheckpointError, match="made with shuffle True, now False"):
        ResumableBatchSampler(100, 10, seed=3, shuffle=False).load_state_dict(sampler.state_dict())
