"""`dataclasses.dataclass(frozen=True)`, made in half the time: a plan has many classes, and every agent makes them.

The standard one compiles six methods for each class; here comparing, hashing and showing are written once for all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def dataclass(*, frozen: bool) -> Any:
    assert frozen, "what a plan says does not change"

    def made(cls: type[T]) -> type[T]:
        cls.__eq__, cls.__hash__, cls.__repr__ = _equal, _hash, _shown  # type: ignore[assignment,method-assign]
        return dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)

    return made


def _values(one: Any) -> tuple[Any, ...]:
    return tuple(one.__dict__.values())


def _equal(one: Any, other: object) -> Any:
    return one.__dict__ == other.__dict__ if other.__class__ is one.__class__ else NotImplemented


def _hash(one: Any) -> int:
    return hash(_values(one))


def _shown(one: Any) -> str:
    return f"{type(one).__qualname__}({', '.join(f'{name}={value!r}' for name, value in one.__dict__.items())})"
