"""The state of every source of random numbers that a training program draws from: python, numpy, torch, CUDA."""

from __future__ import annotations

import random
import sys
from typing import Any

from packtrain.torch.distributed import rank_and_world_size

RngState = dict[str, Any]


def get_rng_state() -> RngState:
    """Of this process, in plain types. numpy's only where the program uses numpy."""
    import torch

    state: RngState = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        state["numpy"] = _get_numpy_state()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = _get_cuda_state()
    return state


def set_rng_state(state: RngState) -> None:
    import torch

    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        _set_numpy_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        _set_cuda_state(state["cuda"])


def _get_cuda_state() -> list[Any]:
    """Of the device that is this process's own; of all of them, if there is no other process to have the others."""
    import torch

    alone = rank_and_world_size()[1] == 1
    return torch.cuda.get_rng_state_all() if alone else [torch.cuda.get_rng_state()]


def _set_cuda_state(states: Any) -> None:
    """Where there are fewer devices now, theirs; one state alone is the current device's, as in older files."""
    import torch

    states = states if isinstance(states, list) else [states]
    if len(states) == 1:
        torch.cuda.set_rng_state(states[0])
        return
    for device, state in enumerate(states[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)


def _get_numpy_state() -> tuple[Any, ...]:
    import numpy

    name, numbers, *rest = numpy.random.get_state(legacy=True)
    return (name, [int(number) for number in numbers], *rest)


def _set_numpy_state(state: tuple[Any, ...]) -> None:
    try:
        import numpy
    except ImportError:  # whoever has no numpy draws no numbers from it
        return
    name, numbers, *rest = state
    numpy.random.set_state((name, numpy.array(numbers, dtype=numpy.uint32), *rest))
