"""Save and restore the random number states of Python, numpy, torch and CUDA, and derive generators from a seed."""

from __future__ import annotations

import random
import sys
from typing import Any

from packtrain.stream.shuffle import derive_seed
from packtrain.torch.distributed import rank_and_world_size

RngState = dict[str, Any]


def get_rng_state() -> RngState:
    """Return the random number states of this process, in plain types; numpy's only if the program uses numpy."""
    import torch

    state: RngState = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        state["numpy"] = _get_numpy_state()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = _get_cuda_states()
    return state


def set_rng_state(state: RngState) -> None:
    """Restore the random number states of this process.

    Args:
        state: The result of `get_rng_state`. States of modules and devices that this node lacks are ignored.
    """
    import torch

    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        _set_numpy_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        _set_cuda_states(state["cuda"])


def seeded_generator(*numbers: int) -> Any:
    """Return a torch.Generator seeded by all numbers. Neighbouring numbers give unrelated generators."""
    import torch

    return torch.Generator().manual_seed(derive_seed(*numbers))


def _get_cuda_states() -> list[Any]:
    """Return the state of this rank's device, or of all devices if there is only one rank."""
    import torch

    is_only_rank = rank_and_world_size()[1] == 1
    return torch.cuda.get_rng_state_all() if is_only_rank else [torch.cuda.get_rng_state()]


def _set_cuda_states(states: list[Any]) -> None:
    """Set the state of the current device, or of as many devices as there are."""
    import torch

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
    except ImportError:  # a program without numpy does not need its state
        return
    name, numbers, *rest = state
    numpy.random.set_state((name, numpy.array(numbers, dtype=numpy.uint32), *rest))
