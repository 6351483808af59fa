"""pydantic's complaints as plain sentences about the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packtrain.spec.diagnostics import Path, Report, did_you_mean, shown
from packtrain.spec.model_walk import belongs_below, keys_of
from packtrain.spec.models.field_types import Model

_NUMBER = "a whole number"
_SHOULD_BE = {
    "int_type": _NUMBER,
    "int_parsing": _NUMBER,
    "int_parsing_size": _NUMBER,
    "int_from_float": _NUMBER,
    "finite_number": _NUMBER,
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}
_LIMITS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_EMPTY = ("too_short", "string_too_short")


def report_all(errors: list[Any], models: Mapping[Path, type[Model]], report: Report) -> None:
    """Report each error of a pydantic ValidationError; `models` says which model stands where."""
    for error in errors:
        path = tuple(part for part in error["loc"] if part != "[key]")
        _REPORTERS.get(error["type"], _plain)(error, path, models, report)


Reporter = Callable[[Any, Path, Mapping[Path, type[Model]], Report], None]


def _missing(error: Any, path: Path, models: Mapping[Path, type[Model]], report: Report) -> None:
    report.key_error(path[:-1], f"{shown(path[:-1])} needs the key {path[-1]!r}, which is missing")


def _unknown(error: Any, path: Path, models: Mapping[Path, type[Model]], report: Report) -> None:
    key, model = str(path[-1]), models.get(path[:-1])
    below = belongs_below(model, key) if model else ""
    hint = f"it belongs below {below!r}" if below else did_you_mean(key, keys_of(model) if model else ())
    report.key_error(path, f"{shown(path[:-1])} has no key {key!r}", hint)


def _choice(error: Any, path: Path, models: Mapping[Path, type[Model]], report: Report) -> None:
    expected = str(error["ctx"]["expected"])
    choices = [choice.strip("' ") for part in expected.split(" or ") for choice in part.split(",")]
    message = f"{shown(path)} should be one of {', '.join(choices)}, but is {_described(error['input'])}"
    report.error(path, message, did_you_mean(str(error["input"]), choices) if len(choices) > 12 else "")


def _plain(error: Any, path: Path, models: Mapping[Path, type[Model]], report: Report) -> None:
    report.error(path, f"{shown(path)} {_complaint(error)}")


def _complaint(error: Any) -> str:
    kind = error["type"]
    if kind in _SHOULD_BE:
        return f"should be {_SHOULD_BE[kind]}, but is {_described(error['input'])}"
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"should be {words} {error['ctx'][key]:g}, but is {_described(error['input'])}"
    if kind in _EMPTY:
        return "should not be empty"
    message = str(error["ctx"]["error"]) if kind == "value_error" else str(error["msg"])
    return message if message.startswith(("should", "may")) else f"is wrong: {message}"


def _described(value: Any) -> str:
    """The value where it is short and plain; only its kind where it may be long."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "empty"
    return getattr(value, "text", None) or (str(value).lower() if isinstance(value, bool) else repr(value)[:60])


_REPORTERS: dict[str, Reporter] = {"missing": _missing, "extra_forbidden": _unknown, "literal_error": _choice}
