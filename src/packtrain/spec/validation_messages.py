"""Convert pydantic's validation errors to messages about the workflow file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packtrain.spec.diagnostics import DiagnosticReport, KeyPath, did_you_mean, format_key_path
from packtrain.spec.model_walk import find_parent_key, model_keys
from packtrain.spec.models.field_types import SpecModel

_WHOLE_NUMBER = "a whole number"
_EXPECTED_TYPES = {
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "finite_number": _WHOLE_NUMBER,
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
_COMPARISONS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_EMPTY_ERROR_TYPES = ("too_short", "string_too_short")


def report_validation_errors(
    errors: list[Any], models_by_path: Mapping[KeyPath, type[SpecModel]], report: DiagnosticReport
) -> None:
    """Report each error of a pydantic ValidationError.

    Args:
        errors: The result of `ValidationError.errors()`.
        models_by_path: The model of each mapping, to find similar keys.
        report: Receives the diagnostics.
    """
    for error in errors:
        path = tuple(part for part in error["loc"] if part != "[key]")
        _ERROR_REPORTERS.get(error["type"], _report_invalid_value)(error, path, models_by_path, report)


# Keys that are written in the wrong place often enough to say where they belong.
_MISPLACED_KEYS: dict[tuple[KeyPath, str], str] = {
    (
        ("resources",),
        "gpusPerTask",
    ): "it belongs to the `resources` of a step; a job has `gpus`, the number for all tasks",
}

ErrorReporter = Callable[[Any, KeyPath, Mapping[KeyPath, type[SpecModel]], DiagnosticReport], None]


def _report_missing_key(
    error: Any, path: KeyPath, models_by_path: Mapping[KeyPath, type[SpecModel]], report: DiagnosticReport
) -> None:
    report.key_error(path[:-1], f"{format_key_path(path[:-1])} needs the key {path[-1]!r}")


def _report_unknown_key(
    error: Any, path: KeyPath, models_by_path: Mapping[KeyPath, type[SpecModel]], report: DiagnosticReport
) -> None:
    key, model = str(path[-1]), models_by_path.get(path[:-1])
    parent = find_parent_key(model, key) if model else ""
    hint = f"it belongs below {parent!r}" if parent else did_you_mean(key, model_keys(model) if model else ())
    hint = _MISPLACED_KEYS.get((path[:-1], key), hint)
    report.key_error(path, f"{format_key_path(path[:-1])} has no key {key!r}", hint)


def _report_invalid_choice(
    error: Any, path: KeyPath, models_by_path: Mapping[KeyPath, type[SpecModel]], report: DiagnosticReport
) -> None:
    expected = str(error["ctx"]["expected"])
    choices = [choice.strip("' ") for part in expected.split(" or ") for choice in part.split(",")]
    message = f"{format_key_path(path)} should be one of {', '.join(choices)}, but is {_describe_value(error['input'])}"
    report.error(path, message, did_you_mean(str(error["input"]), choices) if len(choices) > 12 else "")


def _report_invalid_value(
    error: Any, path: KeyPath, models_by_path: Mapping[KeyPath, type[SpecModel]], report: DiagnosticReport
) -> None:
    report.error(path, f"{format_key_path(path)} {_error_message(error)}")


def _error_message(error: Any) -> str:
    kind = error["type"]
    if kind in _EXPECTED_TYPES:
        return f"should be {_EXPECTED_TYPES[kind]}, but is {_describe_value(error['input'])}"
    if kind in _COMPARISONS:
        comparison, key = _COMPARISONS[kind]
        return f"should be {comparison} {error['ctx'][key]:g}, but is {_describe_value(error['input'])}"
    if kind in _EMPTY_ERROR_TYPES:
        return "should not be empty"
    message = str(error["ctx"]["error"]) if kind == "value_error" else str(error["msg"])
    return message if message.startswith(("should", "may")) else f"is invalid: {message}"


def _describe_value(value: Any) -> str:
    """Return a short value as text, or the kind of a value that may be long."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "empty"
    return getattr(value, "text", None) or (str(value).lower() if isinstance(value, bool) else repr(value)[:60])


_ERROR_REPORTERS: dict[str, ErrorReporter] = {
    "missing": _report_missing_key,
    "extra_forbidden": _report_unknown_key,
    "literal_error": _report_invalid_choice,
}
