"""The fast dataclass decorator behaves like `dataclasses.dataclass(frozen=True)`."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import pytest

from packtrain.plan.fast_dataclass import dataclass as fast_dataclass

STANDARD = dataclasses.dataclass


def make_class(decorator: Any) -> Any:
    @decorator(frozen=True)
    class Example:
        first: int
        second: tuple[int, ...] = ()
        third: list[int] = field(default_factory=list)

    return Example


@pytest.fixture(params=[fast_dataclass, STANDARD], ids=["fast", "standard"])
def example_class(request: pytest.FixtureRequest) -> Any:
    return make_class(request.param)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, (2,)), {}), ((1, (2,), [3]), {}), ((), {"third": [3], "first": 1}), ((1,), {"second": (2,)})],
)
def test_construction(example_class, args, kwargs):
    example = example_class(*args, **kwargs)
    assert (example.first, example.second) == (1, (2,) if len(args) > 1 or "second" in kwargs else ())
    assert example.third == ([3] if len(args) > 2 or "third" in kwargs else [])
    assert example == example_class(*args, **kwargs)
    assert dataclasses.asdict(example) == {"first": example.first, "second": example.second, "third": example.third}
    assert repr(example).endswith(f"Example(first=1, second={example.second!r}, third={example.third!r})")


def test_default_factory(example_class):
    assert example_class(1).third is not example_class(1).third


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, (), [], 4), {}), ((1,), {"fourth": 4})])
def test_bad_arguments(example_class, args, kwargs):
    with pytest.raises(TypeError):
        example_class(*args, **kwargs)


def test_frozen(example_class):
    example = example_class(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del example.first
    assert dataclasses.replace(example, first=2) == example_class(2)
    assert example != example_class(2)


def test_hash(example_class):
    assert len({example_class(1, third=()), example_class(1, third=())}) == 1
