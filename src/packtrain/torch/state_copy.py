"""Copies a program's state into plain memory, so that training can go on while the copy is written."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from packtrain.torch.training_state import CheckpointError

_PLAIN_TYPES = (type(None), bool, int, float, str, bytes)


def copy_state(value: Any, buffer: Any = None, path: str = "the state") -> Any:
    """A copy of tensors, numbers, texts, lists and dicts: just what `torch.load(weights_only=True)` takes.

    The memory of `old`, an earlier copy, is used again where it fits: new pages cost more than copying.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_tensor(value.detach(), buffer)
    if isinstance(value, dict):
        return _copy_dict(value, buffer if isinstance(buffer, dict) else {}, path)
    if isinstance(value, (list, tuple)):
        olds = buffer if isinstance(buffer, (list, tuple)) and len(buffer) == len(value) else [None] * len(value)
        items = [copy_state(item, olds[n], f"{path}[{n}]") for n, item in enumerate(value)]
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
    named: OrderedDict[Any, Any] = OrderedDict(copy)  # a module's state: versions of its layers are an attribute
    named._metadata = value._metadata  # type: ignore[attr-defined]
    return named


def _copy_plain(value: Any, path: str) -> Any:
    if type(value) in _PLAIN_TYPES:
        return value
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    raise CheckpointError(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; "
        "give it tensors, numbers, texts, lists and dicts"
    )


def restore_types(loaded: Any, current: Any) -> Any:
    """What was saved as a plain dict, of the type that the program has there (MultiStepLR counts its milestones)."""
    if not isinstance(loaded, dict) or not isinstance(current, dict):
        return loaded
    same = {key: restore_types(value, current.get(key)) for key, value in loaded.items()}
    return Counter(same) if isinstance(current, Counter) else same
