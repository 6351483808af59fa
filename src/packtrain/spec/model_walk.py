"""A walk over a raw document along its models, right or wrong as it may be.

Rules that concern more than one key run on this, not on finished models: so a misspelt key in one
place does not hide a problem in another.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packtrain.spec.diagnostics import KeyPath
from packtrain.spec.models.field_types import SpecModel


@dataclass(frozen=True)
class ModelNode:
    """A mapping of the document, and the model that it should fit."""

    model: type[SpecModel]
    raw: dict[str, Any]
    path: KeyPath

    def get_mapping(self, key: str) -> dict[str, Any]:
        """What stands under a key, if it is a mapping at all."""
        value = self.raw.get(key)
        return value if isinstance(value, dict) else {}

    def get_list(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        return value if isinstance(value, list) else []


def walk_models(model: type[SpecModel], raw: Any, path: KeyPath = ()) -> Iterator[ModelNode]:
    """Every mapping that has a model, from the top down."""
    if not isinstance(raw, dict):
        return
    yield ModelNode(model, raw, path)
    for field in model.model_fields.values():
        key = field.alias or ""
        if key in raw:
            yield from _walk_annotation(field.annotation, raw[key], (*path, key))


def _walk_annotation(annotation: Any, raw: Any, path: KeyPath) -> Iterator[ModelNode]:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_model(annotation):
        yield from walk_models(annotation, raw, path)
    elif origin is tuple and isinstance(raw, list):
        for position, item in enumerate(raw):
            yield from _walk_annotation(parts[0], item, (*path, position))
    elif origin is dict and isinstance(raw, dict):
        for key, item in raw.items():
            yield from _walk_annotation(parts[1], item, (*path, key))
    elif origin is typing.Annotated:
        yield from _walk_annotation(parts[0], raw, path)
    elif origin in (typing.Union, types.UnionType):
        for part in parts:
            yield from _walk_annotation(part, raw, path)


def model_keys(model: type[SpecModel]) -> set[str]:
    return {field.alias or "" for field in model.model_fields.values()}


def find_parent_key(model: type[SpecModel], key: str) -> str:
    """The key of `model` below which `key` would be known, if there is just one."""
    homes = [
        f.alias or ""
        for f in model.model_fields.values()
        if any(key in model_keys(m) for m in _annotation_models(f.annotation))
    ]
    return homes[0] if len(homes) == 1 else ""


def _annotation_models(annotation: Any) -> list[type[SpecModel]]:
    if _is_model(annotation):
        return [annotation]
    direct = typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated)
    return [model for part in typing.get_args(annotation) for model in _annotation_models(part)] if direct else []


def _is_model(annotation: Any) -> bool:
    # Python 3.10 calls `tuple[int]` a type, which issubclass then refuses.
    plain = typing.get_origin(annotation) is None and isinstance(annotation, type)
    return plain and issubclass(annotation, SpecModel)
