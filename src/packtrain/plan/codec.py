"""Plans <-> JSON. Strict: an unknown key or a wrong type is a FormatError that names its place."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import typing
from pathlib import Path
from typing import Any, Union

from packtrain.errors import FormatError
from packtrain.plan import model

T = typing.TypeVar("T")
_INDENTED_JOBS = 20
_PLAIN = (str, int, float, bool, type(None))
_ALWAYS = ("kind", "version")
_NOTHING = object()


def encode(value: Any) -> Any:
    """Dataclasses to plain JSON values; fields that hold their default are left out, except kind and version."""
    kind = type(value)
    if kind is tuple:
        return [encode(item) for item in value]
    if kind in _PLAIN or not dataclasses.is_dataclass(value):
        return value
    return {
        name: encode(item)
        for name, default, always in _fields(typing.cast(typing.Hashable, kind))
        if (item := getattr(value, name)) is not default and (always or item != default)
    }


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, default and whether it is always written; a default that no value is, for those."""
    found = dataclasses.fields(kind)
    return tuple((f.name, _NOTHING if f.name in _ALWAYS else f.default, f.name in _ALWAYS) for f in found)


def decode(kind: type[T], value: Any, where: str = "plan") -> T:
    """The inverse of `encode`. Raises FormatError with the place, e.g. `plan.jobs[3].limits`."""
    try:
        return typing.cast(T, _decode(kind, value, where))
    except RecursionError:
        raise FormatError(f"{where} is nested too deeply") from None


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Union:
        return _decode_union(typing.get_args(kind), value, where)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, v, f"{where}[{i}]") for i, v in enumerate(_expect(list, value, where)))
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    return _decode_scalar(kind, value, where)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _to_float(value, where)
    if kind is int and isinstance(value, bool):
        raise FormatError(f"{where} should be int, but is bool")
    return _expect(kind, value, where)


def _to_float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise FormatError(f"{where} is too large a number") from None


def _expect(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{where} should be {kind.__name__}, but is {type(value).__name__}")
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    if not isinstance(value, dict):
        plain = [k for k in kinds if not dataclasses.is_dataclass(k) and k is not type(None)]
        return _decode(plain[0] if plain else dict, value, where)
    made = [k for k in kinds if dataclasses.is_dataclass(k)]
    if len(made) > 1:
        made = [k for k in made if k.__dataclass_fields__["kind"].default == value.get("kind")]
    if not made:
        raise FormatError(f"{where} has the unknown kind {value.get('kind')!r}")
    return _decode_dataclass(made[0], value, where)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, {**vars(model), **vars(sys.modules[kind.__module__])})


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    hints = _hints(kind)
    given = {k: v for k, v in _expect(dict, value, where).items() if k != "kind" or "kind" not in hints}
    unknown = sorted(set(given) - set(hints))
    if unknown:
        raise FormatError(f"{where} has the unknown key {unknown[0]!r}")
    try:
        return kind(**{name: _decode(hints[name], v, f"{where}.{name}") for name, v in given.items()})
    except TypeError as error:
        raise FormatError(f"{where} is incomplete: {error}") from None


def write_plan(plan: model.Plan, path: Path) -> None:
    """Write a temporary file, then rename: a plan is complete or absent. Of many jobs each has a line of its own,
    since indenting takes ten times as long."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(plan_text(plan), encoding="utf-8")
    temporary.replace(path)


def plan_text(plan: model.Plan) -> str:
    """The plan as JSON, for people to read."""
    raw = encode(plan)
    if len(plan.jobs) <= _INDENTED_JOBS:
        return json.dumps(raw, indent=1, ensure_ascii=False) + "\n"
    jobs = ",\n  ".join(json.dumps(job, ensure_ascii=False) for job in raw.pop("jobs"))
    head = json.dumps(raw, ensure_ascii=False)[1:-1]
    return f'{{{head},\n "jobs": [\n  {jobs}\n ]}}\n'


def read_plan(path: Path) -> model.Plan:
    """Read and check a plan file. Raises FormatError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"the plan {path} cannot be read: {error}") from error
    version = data.get("version") if isinstance(data, dict) else None
    if version != model.PLAN_VERSION:
        raise FormatError(f"the plan {path} has version {version}; this packtrain reads {model.PLAN_VERSION}")
    return decode(model.Plan, data)
