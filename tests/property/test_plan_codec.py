"""Any plan survives encoding to JSON and decoding."""

import dataclasses
import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain import plan
from packtrain.errors import FormatError
from packtrain.plan import model

# Lone surrogates cannot be written as UTF-8, and the workflow loader rejects them.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
LEAVES = {
    str: TEXT,
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}
STEPS = st.deferred(lambda: st.lists(steps(), max_size=2).map(tuple))


def type_strategy(plan_type):
    """Return a strategy for a type of the plan model."""
    origin, parts = typing.get_origin(plan_type), typing.get_args(plan_type)
    if plan_type in LEAVES:
        return LEAVES[plan_type]
    if origin is typing.Union:
        return st.one_of([type_strategy(part) for part in parts])
    if origin is tuple:
        return STEPS if parts[0] is plan.Step else st.lists(type_strategy(parts[0]), max_size=2).map(tuple)
    return class_strategy(plan_type)


def class_strategy(plan_type):
    hints = typing.get_type_hints(plan_type, vars(model))
    fields = [field.name for field in dataclasses.fields(plan_type) if field.init and field.name != "version"]
    return st.builds(plan_type, **{name: type_strategy(hints[name]) for name in fields})


def steps():
    run_steps = st.builds(plan.Step, name=TEXT, action=class_strategy(plan.RunAction))
    return st.recursive(
        run_steps,
        lambda children: st.builds(
            plan.Step,
            name=TEXT,
            action=st.one_of(
                st.builds(plan.GroupAction, st.tuples(children)),
                st.builds(plan.ForAction, TEXT, st.tuples(TEXT), st.booleans(), st.tuples(children)),
                st.builds(plan.LaunchAction, TEXT, st.integers(0, 64), st.tuples(children)),
                st.builds(plan.UseAction, TEXT, st.just(()), TEXT, st.tuples(children), st.tuples(TEXT)),
            ),
            catch=st.tuples(children) | st.just(()),
            finally_=st.tuples(children) | st.just(()),
        ),
        max_leaves=4,
    )


PLANS = class_strategy(plan.Plan)
SUPPRESSED = [HealthCheck.too_slow]  # plans have many fields


@given(PLANS)
@settings(max_examples=100, suppress_health_check=SUPPRESSED)
def test_round_trip(some_plan):
    assert plan.decode(plan.Plan, plan.encode(some_plan)) == some_plan


@given(PLANS)
@settings(max_examples=100, suppress_health_check=SUPPRESSED)
def test_json_round_trip(some_plan):
    assert plan.decode(plan.Plan, json.loads(json.dumps(plan.encode(some_plan)))) == some_plan


@given(PLANS)
@settings(max_examples=20, suppress_health_check=SUPPRESSED)
def test_file_round_trip(tmp_path_factory, some_plan):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.write_plan(some_plan, path)
    assert plan.read_plan(path) == some_plan


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["run", "name", "jobs", "steps", "kind", "action", "id", "x"]), children, max_size=4
        )
    ),
    max_leaves=10,
)


@given(JSON)
@settings(max_examples=300)
def test_invalid_plans(value):
    with pytest.raises(FormatError):
        plan.decode(plan.Plan, {"run": "r", "name": "n", "engine": "e", "jobs": [value]} if value != [] else value)
