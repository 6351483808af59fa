"""Validate numbers in a JSON file against bounds, for example accuracy ≥ 0.5 in `metrics.json`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from packtrain.agent.outputs.validators import CancelCheck, Validator
from packtrain.plan import Bound

_MAX_JSON_BYTES = 1 << 28
_MAX_KEYS_IN_MESSAGE = 10
_ABSENT = object()


def make_validator(bounds: tuple[Bound, ...]) -> Validator:
    """Return a validator that requires every bounded key to be a finite number within its bounds."""

    def validate(path: Path, check_cancelled: CancelCheck) -> str | None:
        if path.stat().st_size > _MAX_JSON_BYTES:
            return f"it is too large to check: more than {_MAX_JSON_BYTES} bytes"
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            return f"it is not valid JSON: {error}"
        problems = (_check_bound(document, bound) for bound in bounds)
        return next((problem for problem in problems if problem), None)

    return validate


def _check_bound(document: Any, bound: Bound) -> str | None:
    value = _lookup(document, bound.key)
    if value is _ABSENT:
        return f"it has no {bound.key!r}; it has {_format_keys(document)}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{bound.key} is {json.dumps(value)[:80]}, which is not a number"
    if not math.isfinite(value):
        return f"{bound.key} is {value}, which is not finite"
    if bound.min is not None and value < bound.min:
        return f"{bound.key} is {value}, at least {bound.min:g} was expected"
    if bound.max is not None and value > bound.max:
        return f"{bound.key} is {value}, at most {bound.max:g} was expected"
    return None


def _lookup(document: Any, key: str) -> Any:
    """Return the value at a dotted key. `test.accuracy` is also a key of that name; `epochs.-1.loss` indexes a list."""
    if isinstance(document, dict) and key in document:
        return document[key]
    first, dot, rest = key.partition(".")
    inner = _lookup_item(document, first)
    return inner if not dot or inner is _ABSENT else _lookup(inner, rest)


def _lookup_item(document: Any, name: str) -> Any:
    if isinstance(document, dict):
        return document.get(name, _ABSENT)
    try:
        return document[int(name)] if isinstance(document, list) else _ABSENT
    except (ValueError, IndexError):
        return _ABSENT


def _format_keys(document: Any) -> str:
    if not isinstance(document, dict):
        return f"{len(document)} entries" if isinstance(document, list) else "no keys at all"
    names = ", ".join(map(str, list(document)[:_MAX_KEYS_IN_MESSAGE]))
    return (names + (", …" if len(document) > _MAX_KEYS_IN_MESSAGE else "")) or "no keys"
