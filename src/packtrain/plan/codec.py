"""Convert plans to JSON and back. An unknown key or a wrong type is a FormatError that names its JSON path."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import typing
from pathlib import Path
from typing import Any, Union

from packtrain.errors import FormatError
from packtrain.fileutil import atomic_write
from packtrain.plan import model

T = typing.TypeVar("T")
_MAX_INDENTED_JOBS = 20
_SCALAR_TYPES = (str, int, float, bool, type(None))
_ALWAYS_ENCODED = ("kind", "version")
_NO_DEFAULT = object()


def encode(value: Any) -> Any:
    """Convert dataclasses to JSON values. Fields with their default value are omitted, except `kind` and `version`."""
    kind = type(value)
    if kind is tuple:
        return [encode(item) for item in value]
    if kind in _SCALAR_TYPES or not dataclasses.is_dataclass(value):
        return value
    return {
        name: encode(item)
        for name, default, always in _encoded_fields(typing.cast(typing.Hashable, kind))
        if (item := getattr(value, name)) is not default and (always or item != default)
    }


@functools.cache
def _encoded_fields(type_: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return (name, default, always encoded) of each field."""
    fields = dataclasses.fields(type_)
    return tuple(
        (f.name, _NO_DEFAULT if f.name in _ALWAYS_ENCODED else f.default, f.name in _ALWAYS_ENCODED) for f in fields
    )


def decode(type_: type[T], value: Any, json_path: str = "plan") -> T:
    """Convert JSON values to dataclasses. Raises FormatError with the JSON path, e.g. `plan.jobs[3].limits`."""
    try:
        return typing.cast(T, _decode(type_, value, json_path))
    except RecursionError:
        raise FormatError(f"{json_path} is nested too deeply") from None


def _decode(type_: Any, value: Any, json_path: str) -> Any:
    origin = typing.get_origin(type_)
    if origin is Union:
        return _decode_union(typing.get_args(type_), value, json_path)
    if origin is tuple:
        item = typing.get_args(type_)[0]
        return tuple(_decode(item, v, f"{json_path}[{i}]") for i, v in enumerate(_require_type(list, value, json_path)))
    if dataclasses.is_dataclass(type_):
        return _decode_dataclass(type_, value, json_path)
    return _decode_scalar(type_, value, json_path)


def _decode_scalar(type_: Any, value: Any, json_path: str) -> Any:
    if type_ is float and isinstance(value, int) and not isinstance(value, bool):
        return _to_float(value, json_path)
    if type_ is int and isinstance(value, bool):
        raise FormatError(f"{json_path} should be int, but is bool")
    return _require_type(type_, value, json_path)


def _to_float(value: int, json_path: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise FormatError(f"{json_path} is too large a number") from None


def _require_type(type_: type, value: Any, json_path: str) -> Any:
    if not isinstance(value, type_):
        raise FormatError(f"{json_path} should be {type_.__name__}, but is {type(value).__name__}")
    return value


def _decode_union(types: tuple[Any, ...], value: Any, json_path: str) -> Any:
    if value is None and type(None) in types:
        return None
    if not isinstance(value, dict):
        scalars = [k for k in types if not dataclasses.is_dataclass(k) and k is not type(None)]
        return _decode(scalars[0] if scalars else dict, value, json_path)
    candidates = [k for k in types if dataclasses.is_dataclass(k)]
    if len(candidates) > 1:
        candidates = [k for k in candidates if k.__dataclass_fields__["kind"].default == value.get("kind")]
    if not candidates:
        raise FormatError(f"{json_path} has the unknown kind {value.get('kind')!r}")
    return _decode_dataclass(candidates[0], value, json_path)


@functools.cache
def _resolve_type_hints(type_: Any) -> dict[str, Any]:
    return typing.get_type_hints(type_, {**vars(model), **vars(sys.modules[type_.__module__])})


def _decode_dataclass(type_: Any, value: Any, json_path: str) -> Any:
    hints = _resolve_type_hints(type_)
    values = {k: v for k, v in _require_type(dict, value, json_path).items() if k != "kind" or "kind" not in hints}
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise FormatError(f"{json_path} has the unknown key {unknown[0]!r}")
    missing = _required_fields(type_) - set(values)
    if missing:
        raise FormatError(f"{json_path} is incomplete: it has no {min(missing)!r}")
    return type_(**{name: _decode(hints[name], v, f"{json_path}.{name}") for name, v in values.items()})


@functools.cache
def _required_fields(type_: Any) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(type_) if f.default is f.default_factory is dataclasses.MISSING)


def write_plan(plan: model.Plan, path: Path) -> None:
    """Write the plan so that the file is complete or absent."""
    atomic_write(path, format_plan(plan))


def format_plan(plan: model.Plan) -> str:
    """Return the plan as readable JSON. With many jobs each one is a line, because indenting is ten times slower."""
    raw = encode(plan)
    if len(plan.jobs) <= _MAX_INDENTED_JOBS:
        return json.dumps(raw, indent=1, ensure_ascii=False) + "\n"
    jobs = ",\n  ".join(json.dumps(job, ensure_ascii=False) for job in raw.pop("jobs"))
    header = json.dumps(raw, ensure_ascii=False)[1:-1]
    return f'{{{header},\n "jobs": [\n  {jobs}\n ]}}\n'


def read_plan(path: Path) -> model.Plan:
    """Read and validate a plan file. Raises FormatError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"the plan {path} cannot be read: {error}") from error
    version = data.get("version") if isinstance(data, dict) else None
    if version != model.PLAN_VERSION:
        raise FormatError(f"the plan {path} has version {version}; this packtrain reads version {model.PLAN_VERSION}")
    return decode(model.Plan, data)


def write_pixi_lock(lock: model.PixiLock, path: Path) -> None:
    """Write the shared file of an environment, one package per line."""
    raw = encode(lock)
    packages = ",\n  ".join(json.dumps(package, ensure_ascii=False) for package in raw.pop("packages"))
    rest = "".join(f',\n "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in raw.items())
    atomic_write(path, f'{{"packages": [\n  {packages}\n ]{rest}}}\n')


def read_pixi_lock(path: Path) -> model.PixiLock:
    """Read the shared file of an environment. Raises FormatError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"the environment's file {path} cannot be read: {error}") from error
    return decode(model.PixiLock, data, "environment")
