"""Copies a program's state into plain memory, so that training can go on while the copy is written."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from packtrain.torch.training_state import CheckpointError

_PLAIN = (type(None), bool, int, float, str, bytes)


def copied(value: Any, old: Any = None, where: str = "the state") -> Any:
    """A copy of tensors, numbers, texts, lists and dicts: just what `torch.load(weights_only=True)` takes.

    The memory of `old`, an earlier copy, is used again where it fits: new pages cost more than copying.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(value.detach(), old)
    if isinstance(value, dict):
        return _dict(value, old if isinstance(old, dict) else {}, where)
    if isinstance(value, (list, tuple)):
        olds = old if isinstance(old, (list, tuple)) and len(old) == len(value) else [None] * len(value)
        items = [copied(item, olds[n], f"{where}[{n}]") for n, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return _plain(value, where)


def _tensor(value: Any, old: Any) -> Any:
    if _fits(value, old):
        return old.copy_(value)
    return value.to("cpu", copy=True)


def _fits(value: Any, old: Any) -> bool:
    if not hasattr(old, "copy_") or old.dtype != value.dtype:
        return False
    return bool(old.shape == value.shape and old.stride() == value.stride())


def _dict(value: dict[Any, Any], old: dict[Any, Any], where: str) -> dict[Any, Any]:
    copy = {key: copied(item, old.get(key), f"{where}[{key!r}]") for key, item in value.items()}
    if not hasattr(value, "_metadata"):
        return copy
    named: OrderedDict[Any, Any] = OrderedDict(copy)  # a module's state: versions of its layers are an attribute
    named._metadata = value._metadata  # type: ignore[attr-defined]
    return named


def _plain(value: Any, where: str) -> Any:
    if type(value) in _PLAIN:
        return value
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    raise CheckpointError(
        f"{where} is a {type(value).__name__}, which a checkpoint cannot hold; "
        "give it tensors, numbers, texts, lists and dicts"
    )


def as_it_was(loaded: Any, current: Any) -> Any:
    """What was saved as a plain dict, of the type that the program has there (MultiStepLR counts its milestones)."""
    if not isinstance(loaded, dict) or not isinstance(current, dict):
        return loaded
    same = {key: as_it_was(value, current.get(key)) for key, value in loaded.items()}
    return Counter(same) if isinstance(current, Counter) else same
