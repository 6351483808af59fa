"""Numbers in a JSON file and their bounds: `metrics.json: accuracy ≥ 0.5`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from packtrain.agent.outputs.validators import Heed, Judge
from packtrain.plan import Bound

_LARGEST = 1 << 28
_KEYS_SHOWN = 10
_ABSENT = object()


def judging(bounds: tuple[Bound, ...]) -> Judge:
    def judge(path: Path, heed: Heed) -> str | None:
        """What is wrong with the numbers, or None."""
        if path.stat().st_size > _LARGEST:
            return f"it is too large to be looked at: more than {_LARGEST} bytes"
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            return f"it is no JSON: {error}"
        problems = (_problem(found, bound) for bound in bounds)
        return next((problem for problem in problems if problem), None)

    return judge


def _problem(found: Any, bound: Bound) -> str | None:
    value = _value(found, bound.key)
    if value is _ABSENT:
        return f"it has no {bound.key!r}; it has {_names(found)}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{bound.key} is {json.dumps(value)[:80]}, which is no number"
    if not math.isfinite(value):
        return f"{bound.key} is {value}, which is no finite number"
    if bound.min is not None and value < bound.min:
        return f"{bound.key} is {value}, at least {bound.min:g} was expected"
    if bound.max is not None and value > bound.max:
        return f"{bound.key} is {value}, at most {bound.max:g} was expected"
    return None


def _value(found: Any, key: str) -> Any:
    """`test.accuracy` is the key of that name, or `accuracy` below `test`; `epochs.-1.loss` counts in a list."""
    if isinstance(found, dict) and key in found:
        return found[key]
    first, dot, rest = key.partition(".")
    inner = _item(found, first)
    return inner if not dot or inner is _ABSENT else _value(inner, rest)


def _item(found: Any, name: str) -> Any:
    if isinstance(found, dict):
        return found.get(name, _ABSENT)
    try:
        return found[int(name)] if isinstance(found, list) else _ABSENT
    except (ValueError, IndexError):
        return _ABSENT


def _names(found: Any) -> str:
    if not isinstance(found, dict):
        return f"{len(found)} entries" if isinstance(found, list) else "no keys at all"
    names = ", ".join(map(str, list(found)[:_KEYS_SHOWN]))
    return (names + (", …" if len(found) > _KEYS_SHOWN else "")) or "no keys"
