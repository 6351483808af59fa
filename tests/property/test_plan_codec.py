"""Every plan survives the way to JSON and back."""

import dataclasses
import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain import plan
from packtrain.errors import FormatError
from packtrain.plan import model

# Lone surrogates cannot be written as UTF-8, and no spec lets one through.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
LEAVES = {
    str: TEXT,
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}
STEPS = st.deferred(lambda: st.lists(steps(), max_size=2).map(tuple))


def of_type(kind):
    """A strategy for a type of the plan's model."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in LEAVES:
        return LEAVES[kind]
    if origin is typing.Union:
        return st.one_of([of_type(part) for part in parts])
    if origin is tuple:
        return STEPS if parts[0] is plan.Step else st.lists(of_type(parts[0]), max_size=2).map(tuple)
    return made(kind)


def made(kind):
    hints = typing.get_type_hints(kind, vars(model))
    fields = [field.name for field in dataclasses.fields(kind) if field.init and field.name != "version"]
    return st.builds(kind, **{name: of_type(hints[name]) for name in fields})


def steps():
    runs = st.builds(plan.Step, name=TEXT, action=made(plan.RunAction))
    return st.recursive(
        runs,
        lambda below: st.builds(
            plan.Step,
            name=TEXT,
            action=st.one_of(
                st.builds(plan.GroupAction, st.tuples(below)),
                st.builds(plan.ForAction, TEXT, st.tuples(TEXT), st.booleans(), st.tuples(below)),
                st.builds(plan.LaunchAction, TEXT, st.integers(0, 64), st.tuples(below)),
                st.builds(plan.UseAction, TEXT, st.just(()), TEXT, st.tuples(below), st.tuples(TEXT)),
            ),
            catch=st.tuples(below) | st.just(()),
            finally_=st.tuples(below) | st.just(()),
        ),
        max_leaves=4,
    )


PLANS = made(plan.Plan)
SLOW_TO_MAKE = [HealthCheck.too_slow]  # there are that many fields


@given(PLANS)
@settings(max_examples=100, suppress_health_check=SLOW_TO_MAKE)
def test_decode_undoes_encode(made_plan):
    assert plan.decode(plan.Plan, plan.encode(made_plan)) == made_plan


@given(PLANS)
@settings(max_examples=100, suppress_health_check=SLOW_TO_MAKE)
def test_decode_undoes_encode_through_json(made_plan):
    assert plan.decode(plan.Plan, json.loads(json.dumps(plan.encode(made_plan)))) == made_plan


@given(PLANS)
@settings(max_examples=20, suppress_health_check=SLOW_TO_MAKE)
def test_a_plan_file_says_what_the_plan_said(tmp_path_factory, made_plan):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.write_plan(made_plan, path)
    assert plan.read_plan(path) == made_plan


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["run", "name", "jobs", "steps", "kind", "action", "id", "x"]), below, max_size=4
        )
    ),
    max_leaves=10,
)


@given(JSON)
@settings(max_examples=300)
def test_what_is_no_plan_is_a_format_error_and_nothing_else(value):
    with pytest.raises(FormatError):
        plan.decode(plan.Plan, {"run": "r", "name": "n", "engine": "e", "jobs": [value]} if value != [] else value)
