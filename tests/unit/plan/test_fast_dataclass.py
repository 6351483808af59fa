"""The classes of a plan behave as frozen dataclasses do."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import pytest

from packtrain.plan.fast_dataclass import dataclass as ours

STANDARD = dataclasses.dataclass


def kind(decorator: Any) -> Any:
    @decorator(frozen=True)
    class Kind:
        first: int
        second: tuple[int, ...] = ()
        third: list[int] = field(default_factory=list)

    return Kind


@pytest.fixture(params=[ours, STANDARD], ids=["ours", "standard"])
def made(request: pytest.FixtureRequest) -> Any:
    return kind(request.param)


@pytest.mark.parametrize(
    ("args", "given"),
    [((1,), {}), ((1, (2,)), {}), ((1, (2,), [3]), {}), ((), {"third": [3], "first": 1}), ((1,), {"second": (2,)})],
)
def test_fields_are_given_in_any_way(made, args, given):
    one = made(*args, **given)
    assert (one.first, one.second) == (1, (2,) if len(args) > 1 or "second" in given else ())
    assert one.third == ([3] if len(args) > 2 or "third" in given else [])
    assert one == made(*args, **given)
    assert dataclasses.asdict(one) == {"first": one.first, "second": one.second, "third": one.third}
    assert repr(one).endswith(f"Kind(first=1, second={one.second!r}, third={one.third!r})")


def test_each_has_a_list_of_its_own(made):
    assert made(1).third is not made(1).third


@pytest.mark.parametrize(("args", "given"), [((), {}), ((1, (), [], 4), {}), ((1,), {"fourth": 4})])
def test_what_does_not_fit_is_refused(made, args, given):
    with pytest.raises(TypeError):
        made(*args, **given)


def test_nothing_changes(made):
    one = made(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.first
    assert dataclasses.replace(one, first=2) == made(2)
    assert one != made(2)


def test_equal_ones_are_one_key(made):
    assert len({made(1, third=()), made(1, third=())}) == 1
