"""Encoding and decoding plans. Every error is a FormatError that names the key."""

from __future__ import annotations

import copy
import json

import pytest

from packtrain.errors import FormatError
from packtrain.plan import (
    PLAN_VERSION,
    EnvVar,
    ForAction,
    GroupAction,
    HttpHeader,
    Input,
    Job,
    Limits,
    Location,
    Plan,
    RemoteFile,
    Resources,
    RunAction,
    Secret,
    Step,
    decode,
    encode,
    read_plan,
    write_plan,
)

STEP = Step(
    "train",
    RunAction("python train.py", env=(EnvVar("TOKEN", Secret("token")),)),
    finally_=(Step("bye", RunAction("x")),),
)
SOURCE = Location("https://example.org/x", headers=(HttpHeader("A", "b"),), token=Secret("token"))
JOB = Job(
    "0",
    point=(EnvVar("lr", "0.1"),),
    resources=Resources(gpus=1),
    limits=Limits(wall_time_s=60.0),
    steps=(STEP, Step("sweep", ForAction("item", ("a", "b"), True, (STEP,)))),
    inputs=(Input("", "input", files=(RemoteFile("x", (SOURCE,), size=5),)),),
)
PLAN = Plan("run-1", "name", "local", (JOB,))
JSON = json.loads(json.dumps(encode(PLAN)))


def test_round_trip(tmp_path):
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)
    assert read_plan(path) == PLAN
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"], "no temporary file remains"


def test_defaults_are_omitted():
    """The version and the kinds of actions are always written."""
    assert JSON["version"] == PLAN_VERSION
    assert JSON["jobs"][0]["steps"][0]["action"]["kind"] == "run"
    assert "htcondor" not in JSON
    assert "retry_timeout_s" not in JSON["jobs"][0]


def test_int_becomes_float():
    assert decode(Limits, {"wall_time_s": 60}).wall_time_s == 60.0
    assert isinstance(decode(Limits, {"wall_time_s": 60}).wall_time_s, float)


def value_at(value, *keys):
    for key in keys:
        value = value[key]
    return value


JOB_0, STEP_0 = ("jobs", 0), ("jobs", 0, "steps", 0)
BAD_VALUES = {
    "unknown key": ((), "extra", 1, "plan has the unknown key 'extra'"),
    "unknown nested key": (JOB_0, "colour", "red", r"plan.jobs\[0\] has the unknown key 'colour'"),
    "unexpected kind": (JOB_0, "kind", "job", r"plan.jobs\[0\] has the unknown key 'kind'"),
    "str for int": (
        (*JOB_0, "limits"),
        "max_attempts",
        "3",
        r"plan.jobs\[0\].limits.max_attempts should be int",
    ),
    "bool for int": (
        (*JOB_0, "limits"),
        "max_attempts",
        True,
        r"limits.max_attempts should be int, but is bool",
    ),
    "bool for float": ((*JOB_0, "limits"), "grace_s", True, r"limits.grace_s should be float, but is bool"),
    "float for int": (
        (*JOB_0, "limits"),
        "max_attempts",
        1.5,
        r"limits.max_attempts should be int, but is float",
    ),
    "int too large for float": ((*JOB_0, "limits"), "wall_time_s", 10**400, r"limits.wall_time_s is too large"),
    "int for str": ((), "name", 5, "plan.name should be str, but is int"),
    "null for str": ((), "name", None, "plan.name should be str, but is NoneType"),
    "dict for list": ((), "jobs", {}, "plan.jobs should be list, but is dict"),
    "list for dict": ((), "jobs", [[]], r"plan.jobs\[0\] should be dict, but is list"),
    "unknown kind": ((*STEP_0, "action"), "kind", "dance", r"steps\[0\].action has the unknown kind 'dance'"),
    "kind is a list": ((*STEP_0, "action"), "kind", ["run"], r"steps\[0\].action has the unknown kind \['run'\]"),
    "key of another kind": ((*STEP_0, "action"), "parallel", True, r"action has the unknown key 'parallel'"),
    "int for secret": ((*STEP_0, "action", "env", 0), "value", 5, r"env\[0\].value should be str, but is int"),
    "list for container": ((*STEP_0, "action"), "container", [], r"action.container should be dict, but is list"),
}


@pytest.mark.parametrize(("keys", "key", "value", "message"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_bad_values(keys, key, value, message):
    data = copy.deepcopy(JSON)
    value_at(data, *keys)[key] = value
    with pytest.raises(FormatError, match=message):
        decode(Plan, data)


MISSING = [
    ((), "run", r"plan is incomplete: .*run"),
    (JOB_0, "limits", r"plan.jobs\[0\] is incomplete: .*limits"),
    ((*STEP_0, "action"), "command", r"plan.jobs\[0\].steps\[0\].action is incomplete: .*command"),
    ((*STEP_0, "action"), "kind", r"plan.jobs\[0\].steps\[0\].action has the unknown kind None"),
]


@pytest.mark.parametrize(("keys", "key", "message"), MISSING)
def test_missing_keys(keys, key, message):
    data = copy.deepcopy(JSON)
    del value_at(data, *keys)[key]
    with pytest.raises(FormatError, match=message):
        decode(Plan, data)


@pytest.mark.parametrize("version", [PLAN_VERSION + 1, 0, None, "1", True, 1.0])
def test_other_versions(tmp_path, version):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**JSON, "version": version}))
    with pytest.raises(FormatError, match="version"):
        read_plan(path)


UNREADABLE = {
    "empty": b"",
    "truncated": json.dumps(JSON).encode()[:100],
    "not UTF-8": b'{"version": "\xff"}',
    "list": b"[]",
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_files(tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"plan\.json"):
        read_plan(path)


def test_missing_file(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        read_plan(tmp_path / "plan.json")


def test_nesting_limit():
    data = encode(Step("leaf", RunAction("x")))
    for _ in range(2000):
        data = {"name": "group", "action": {"kind": "steps", "steps": [data]}}
    with pytest.raises(FormatError, match="nested too deeply"):
        decode(Step, data, "step")


def test_nested_steps():
    step = STEP
    for _ in range(20):
        step = Step("group", GroupAction((step,)))
    assert decode(Step, encode(step)) == step
