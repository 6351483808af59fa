"""Tests of the random number states of GPUs, with a fake of torch.cuda."""

from __future__ import annotations

import pytest
import torch

from packtrain.torch import rng_state

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


class FakeCuda:
    """Replaces torch.cuda by `count` devices. The device of this process is `current`."""

    def __init__(self, monkeypatch, count, current=0, world_size=1):
        self.states, self.current = [torch.tensor([device]) for device in range(count)], current
        functions = {
            "is_initialized": lambda: True,
            "is_available": lambda: True,
            "device_count": lambda: count,
            "get_rng_state": lambda: self.states[current],
            "get_rng_state_all": lambda: list(self.states),
            "set_rng_state": self._set,
        }
        for name, function in functions.items():
            monkeypatch.setattr(torch.cuda, name, function)
        monkeypatch.setattr(rng_state, "rank_and_world_size", lambda: (current, world_size))

    def _set(self, state, device=None):
        self.states[self.current if device is None else device] = state

    def reset(self):
        self.states = [torch.tensor([-1]) for _ in self.states]

    @property
    def numbers(self):
        return [int(state) for state in self.states]


def test_one_process_saves_all_devices(monkeypatch):
    devices = FakeCuda(monkeypatch, 3)
    state = rng_state.get_rng_state()
    devices.reset()
    rng_state.set_rng_state(state)
    assert devices.numbers == [0, 1, 2]


def test_each_rank_saves_its_device(monkeypatch):
    devices = FakeCuda(monkeypatch, 3, current=1, world_size=3)
    state = rng_state.get_rng_state()
    devices.reset()
    rng_state.set_rng_state(state)
    assert devices.numbers == [-1, 1, -1]


def test_restore_with_fewer_devices(monkeypatch):
    FakeCuda(monkeypatch, 3)
    state = rng_state.get_rng_state()
    fewer = FakeCuda(monkeypatch, 2)
    fewer.reset()
    rng_state.set_rng_state(state)
    assert fewer.numbers == [0, 1]
