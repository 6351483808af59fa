"""Numbers in a JSON file and their bounds: `metrics.json: accuracy ≥ 0.5`."""

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
    def validate(path: Path, check_cancelled: CancelCheck) -> str | None:
        """What is wrong with the numbers, or None."""
        if path.stat().st_size > _MAX_JSON_BYTES:
            return f"it is too large to be looked at: more than {_MAX_JSON_BYTES} bytes"
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            return f"it is no JSON: {error}"
        problems = (_check_bound(found, bound) for bound in bounds)
        return next((problem for problem in problems if problem), None)

    return validate


def _check_bound(document: Any, bound: Bound) -> str | None:
    value = _lookup(document, bound.key)
    if value is _ABSENT:
        return f"it has no {bound.key!r}; it has {_format_keys(document)}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{bound.key} is {json.dumps(value)[:80]}, which is no number"
    if not math.isfinite(value):
        return f"{bound.key} is {value}, which is no finite number"
    if bound.min is not None and value < bound.min:
        return f"{bound.key} is {value}, at least {bound.min:g} was expected"
    if bound.max is not None and value > bound.max:
        return f"{bound.key} is {value}, at most {bound.max:g} was expected"
    return None


def _lookup(document: Any, key: str) -> Any:
    """`test.accuracy` is the key of that name, or `accuracy` below `test`; `epochs.-1.loss` counts in a list."""
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
