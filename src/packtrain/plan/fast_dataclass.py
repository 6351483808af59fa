"""A fast replacement for `dataclasses.dataclass(frozen=True)`: every agent creates the plan's many classes at start.

The standard decorator compiles six methods for each class; here all classes share them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, TypeVar

T = TypeVar("T")


def dataclass(*, frozen: bool) -> Any:
    """Return a decorator that makes a class a frozen dataclass."""
    assert frozen, "classes of a plan are frozen"

    def decorate(cls: type[T]) -> type[T]:
        one: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        one.__init__ = _make_init(dataclasses.fields(one))
        one.__setattr__ = one.__delattr__ = _raise_frozen_error
        one.__eq__, one.__hash__, one.__repr__ = _eq, _hash, _repr
        return cls

    return decorate


def _make_init(fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    names = tuple(field.name for field in fields)
    values = {field.name: field.default for field in fields}
    factories = {field.name: field.default_factory for field in fields if field.default is dataclasses.MISSING}

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own = self.__dict__
        own.update(values)
        own.update(zip(names, args))
        own.update(kwargs)
        for name, factory in factories.items():
            if own[name] is dataclasses.MISSING:
                own[name] = _call_factory(factory, type(self), name)
        if len(own) > len(names) or len(args) > len(names):
            unknown = [*args[len(names) :], *list(own)[len(names) :]]
            raise TypeError(f"{type(self).__name__} has no field for {unknown[0]!r}")

    return init


def _call_factory(factory: Any, cls: type[Any], name: str) -> Any:
    if factory is dataclasses.MISSING:
        raise TypeError(f"{cls.__name__} lacks its field {name}")
    return factory()


def _raise_frozen_error(one: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change the field {name} of {type(one).__name__}")


def _field_values(one: Any) -> tuple[Any, ...]:
    return tuple(one.__dict__.values())


def _eq(one: Any, other: object) -> Any:
    return one.__dict__ == other.__dict__ if other.__class__ is one.__class__ else NotImplemented


def _hash(one: Any) -> int:
    return hash(_field_values(one))


def _repr(one: Any) -> str:
    return f"{type(one).__qualname__}({', '.join(f'{name}={value!r}' for name, value in one.__dict__.items())})"
