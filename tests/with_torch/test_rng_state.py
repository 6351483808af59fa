"""Random numbers of GPUs, where there are none: their states are kept by a stand-in for the driver."""

from __future__ import annotations

import pytest
import torch

from packtrain.torch import rng_state

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


class Devices:
    """What torch.cuda answers on a machine with so many, of which `current` is this process's own."""

    def __init__(self, monkeypatch, count, current=0, world=1):
        self.states, self.current = [torch.tensor([device]) for device in range(count)], current
        of_cuda = {
            "is_initialized": lambda: True,
            "is_available": lambda: True,
            "device_count": lambda: count,
            "get_rng_state": lambda: self.states[current],
            "get_rng_state_all": lambda: list(self.states),
            "set_rng_state": self._set,
        }
        for name, answer in of_cuda.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr(rng_state, "rank_and_world_size", lambda: (current, world))

    def _set(self, state, device=None):
        self.states[self.current if device is None else device] = state

    def lose_theirs(self):
        self.states = [torch.tensor([-1]) for _ in self.states]

    @property
    def numbers(self):
        return [int(state) for state in self.states]


def test_a_process_alone_has_the_state_of_all_devices(monkeypatch):
    devices = Devices(monkeypatch, 3)
    state = rng_state.get_rng_state()
    devices.lose_theirs()
    rng_state.set_rng_state(state)
    assert devices.numbers == [0, 1, 2]


def test_one_of_several_has_that_of_its_own(monkeypatch):
    devices = Devices(monkeypatch, 3, current=1, world=3)
    state = rng_state.get_rng_state()
    devices.lose_theirs()
    rng_state.set_rng_state(state)
    assert devices.numbers == [-1, 1, -1]


def test_on_a_machine_with_fewer_devices(monkeypatch):
    Devices(monkeypatch, 3)
    state = rng_state.get_rng_state()
    fewer = Devices(monkeypatch, 2)
    fewer.lose_theirs()
    rng_state.set_rng_state(state)
    assert fewer.numbers == [0, 1]


def test_a_file_of_before_has_one_state_alone(monkeypatch):
    devices = Devices(monkeypatch, 2, current=1)
    state = rng_state.get_rng_state()
    rng_state.set_rng_state({**state, "cuda": torch.tensor([7])})
    assert devices.numbers == [0, 7]
