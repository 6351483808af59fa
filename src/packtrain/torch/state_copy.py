"""Copy the state of a program to CPU memory, so that training continues while the copy is written."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from packtrain.torch.training_state import CheckpointError

_PLAIN_TYPES = (type(None), bool, int, float, str, bytes)


def copy_state(value: Any, buffer: Any = None, path: str = "the state") -> Any:
    """Copy tensors, numbers, strings, lists and dicts: the types that `torch.load(weights_only=True)` accepts.

    Args:
        value: The state to copy.
        buffer: An earlier copy whose memory is reused where it fits. Allocating new pages costs more than copying.
        path: The name of the value in error messages.

    Returns:
        The copy, with all tensors on the CPU.

    Raises:
        CheckpointError: The state holds a value of another type.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_tensor(value.detach(), buffer)
    if isinstance(value, dict):
        return _copy_dict(value, buffer if isinstance(buffer, dict) else {}, path)
    if isinstance(value, (list, tuple)):
        buffers = buffer if isinstance(buffer, (list, tuple)) and len(buffer) == len(value) else [None] * len(value)
        items = [copy_state(item, buffers[n], f"{path}[{n}]") for n, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return _copy_plain(value, path)


def _copy_tensor(value: Any, buffer: Any) -> Any:
    if _can_reuse(value, buffer):
        return buffer.copy_(value)
    return value.to("cpu", copy=True)


def _can_reuse(value: Any, buffer: Any) -> bool:
    if not hasattr(buffer, "copy_") or buffer.dtype != value.dtype:
        return False
    return bool(buffer.shape == value.shape and buffer.stride() == value.stride())


def _copy_dict(value: dict[Any, Any], buffer: dict[Any, Any], path: str) -> dict[Any, Any]:
    copy = {key: copy_state(item, buffer.get(key), f"{path}[{key!r}]") for key, item in value.items()}
    if not hasattr(value, "_metadata"):
        return copy
    ordered: OrderedDict[Any, Any] = OrderedDict(copy)  # a module's state keeps its layers' versions in an attribute
    ordered._metadata = value._metadata  # type: ignore[attr-defined]
    return ordered


def _copy_plain(value: Any, path: str) -> Any:
    if type(value) in _PLAIN_TYPES:
        return value
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    raise CheckpointError(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; "
        "use tensors, numbers, strings, lists and dicts"
    )


def restore_types(loaded: Any, current: Any) -> Any:
    """Convert loaded plain dicts to the types of the program's own state (MultiStepLR uses a Counter).

    Args:
        loaded: A state loaded from a checkpoint.
        current: The state of the object that it is loaded into.
    """
    if not isinstance(loaded, dict) or not isinstance(current, dict):
        return loaded
    converted = {key: restore_types(value, current.get(key)) for key, value in loaded.items()}
    return Counter(converted) if isinstance(current, Counter) else converted
