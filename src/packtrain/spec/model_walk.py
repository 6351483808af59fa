"""Walk a raw document along its models, even if it is invalid.

Checks that involve several keys run on the raw document instead of validated models, so that a misspelt key does not
hide other problems.
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
    """A mapping of the document and its model."""

    model: type[SpecModel]
    raw: dict[str, Any]
    path: KeyPath

    def get_mapping(self, key: str) -> dict[str, Any]:
        """Return the value of a key if it is a mapping, else {}."""
        value = self.raw.get(key)
        return value if isinstance(value, dict) else {}

    def get_list(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        return value if isinstance(value, list) else []


def walk_models(model: type[SpecModel], raw: Any, path: KeyPath = ()) -> Iterator[ModelNode]:
    """Yield every mapping that has a model, top down."""
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
    """Return the key of `model` whose own model has `key`, if there is exactly one, else ""."""
    parents = [
        f.alias or ""
        for f in model.model_fields.values()
        if any(key in model_keys(m) for m in _annotation_models(f.annotation))
    ]
    return parents[0] if len(parents) == 1 else ""


def _annotation_models(annotation: Any) -> list[type[SpecModel]]:
    if _is_model(annotation):
        return [annotation]
    direct = typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated)
    return [model for part in typing.get_args(annotation) for model in _annotation_models(part)] if direct else []


def _is_model(annotation: Any) -> bool:
    # On Python 3.10 `tuple[int]` is a type that issubclass rejects.
    plain = typing.get_origin(annotation) is None and isinstance(annotation, type)
    return plain and issubclass(annotation, SpecModel)
