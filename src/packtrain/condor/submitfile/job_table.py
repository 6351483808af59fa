"""The jobs of a submit file as a table: which texts are the same for all, and what the others differ in.

A text is a template: it may hold marks (`macros.mark`) of `job`, `run` and the columns of the table.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packtrain.condor.submitfile import macros
from packtrain.condor.submitfile.description import Description
from packtrain.condor.submitfile.macros import MARK, VariesError, mark
from packtrain.condor.submitfile.queue_statement import Queue
from packtrain.spec.placeholders import BUILT_IN

_RESERVED = (*BUILT_IN, "include", "exclude")
_NATIVE = {
    "cluster": "$(Cluster)",
    "clusterid": "$(Cluster)",
    "process": "$(Process)",
    "procid": "$(Process)",
    "jobid": "$(Cluster).$(Process)",
}
_UNKNOWN = ("submit_time", "year", "month", "day", "node")


class Jobs:
    def __init__(self, description: Description, environment: Mapping[str, str]) -> None:
        self._description, self._environment = description, environment
        self._queue = description.queue or Queue()
        self._names = {variable.lower(): _column(variable) for variable in self._queue.variables}
        rows = self._queue.rows or ((),)
        self._columns: dict[str, list[str]] = {
            column: [row[i] for row in rows for _ in range(self._queue.count)]
            for i, column in enumerate(self._names.values())
        }
        self._derived = False  # whether a column was added, so that rows differ where items do not
        self.undefined: set[str] = set()

    def __len__(self) -> int:
        return max(len(self._queue.rows), 1) * self._queue.count

    @property
    def fields(self) -> tuple[str, ...]:
        """What is filled in where it stands in braces."""
        return (*BUILT_IN, *self._columns)

    # texts

    def template(self, text: str) -> str:
        """With marks for what differs. Raises MacroError."""
        try:
            return macros.expand(text, self._symbol, self._environment)
        except VariesError:
            return self.column("value", [self.concrete(text, job) for job in range(len(self))])

    def concrete(self, text: str, job: int) -> str:
        """As it is for one job; only the run's name stays a mark. Raises MacroError."""
        return macros.expand(text, lambda name: self._value(name, job), self._environment)

    def native(self, text: str) -> str:
        """With HTCondor's own numbers left to HTCondor. Raises MacroError; VariesError: it depends on the item."""

        def look_up(name: str) -> str | None:
            return mark(name) if name in _NATIVE else self._symbol(name)

        filled = macros.fill_marks(macros.expand(text, look_up, self._environment), _NATIVE)
        if MARK.search(filled):
            raise VariesError("it differs from job to job")
        return filled

    def of_each(self, template: str) -> list[str]:
        """A template as it is for each job; only the run's name stays a mark."""
        if not MARK.search(template):
            return [template] * len(self)
        return [macros.fill_marks(template, self._point(job)) for job in range(len(self))]

    def column(self, name: str, values: Sequence[str]) -> str:
        """The template of a text that is given for each job."""
        if len(set(values)) == 1:
            return values[0]
        for known, column in self._columns.items():
            if column == list(values):
                return mark(known)
        if any(MARK.search(value) for value in values):
            raise macros.MacroError("the run's name together with a function of the job's number is too much")
        self._derived = True
        free = first_free(name, "", self.fields)
        self._columns[free] = list(values)
        return mark(free)

    def differ(self, template: str) -> bool:
        return len(set(self.of_each(template))) > 1

    # the workflow's side

    def braces(self, template: str) -> str:
        """As a workflow's text. Raises MacroError if the text itself has such a field."""
        for field in self.fields:
            if f"{{{field}}}" in template:
                raise macros.MacroError(f"{{{field}}} has a meaning in workflows; rename it")
        return MARK.sub(lambda found: f"{{{found.group(1)}}}", template)

    def matrix(self) -> dict[str, Any]:
        """The keys `count` and `matrix` of the workflow."""
        if not self._columns:
            return {"count": len(self)} if len(self) > 1 else {}
        columns, count = self._columns, self._queue.count
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if not self._derived:
            rows = rows[::count]
        alone = [row[name] for name in columns for row in rows] if len(columns) == 1 else []
        if alone and len(set(alone)) == len(alone):
            made: dict[str, Any] = {"matrix": {next(iter(columns)): alone}}
        else:
            made = {"matrix": {"include": _told_apart(rows)}}
        return made if self._derived or count == 1 else {**made, "count": count}

    # macros

    def _symbol(self, name: str) -> str | None:
        if name in self._names:
            return mark(self._names[name])
        if name in ("step", "row", "itemindex") and name not in self._description.settings:
            return self._counter(name)
        return self._common(name, mark("job"))

    def _value(self, name: str, job: int) -> str | None:
        if name in self._names:
            return self._columns[self._names[name]][job]
        if name in ("step", "row", "itemindex") and name not in self._description.settings:
            return str(job % self._queue.count if name == "step" else job // self._queue.count)
        return self._common(name, str(job))

    def _common(self, name: str, job: str) -> str | None:
        if name in ("process", "procid"):
            return job
        if name in ("cluster", "clusterid"):
            return mark("run")
        if name == "jobid":
            return f"{mark('run')}.{job}"
        value = self._description.raw(name)
        if value is None and name == "submit_file":
            return self._description.name
        if value is None and name in _UNKNOWN:
            raise macros.MacroError(f"$({name.upper()}) is not supported")
        if value is None:
            self.undefined.add(name)
        return value

    def _counter(self, name: str) -> str:
        """$(Step) counts within an item, $(Row) counts the items."""
        inner, rows = self._queue.count, len(self._queue.rows)
        if name == "step":
            values = [str(job % inner) for job in range(len(self))]
        else:
            values = [str(job // inner) for job in range(len(self))]
        if len(self) > 1 and (rows == 0) == (name == "step") and (rows == 0 or inner == 1):
            return mark("job")
        return self.column(name, values)

    def _point(self, job: int) -> dict[str, str]:
        return {"job": str(job), **{name: values[job] for name, values in self._columns.items()}}


def first_free(name: str, between: str, taken: Collection[str]) -> str:
    """The name, or with the first number behind it that makes it one of its own."""
    numbered = (f"{name}{between}{number}" for number in itertools.count(2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def _column(variable: str) -> str:
    name = re.sub(r"\W", "_", variable, flags=re.ASCII)
    return f"{name}_" if name.lower() in _RESERVED else name


def _told_apart(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A matrix has each point once."""
    if len({tuple(row.items()) for row in rows}) == len(rows):
        return rows
    return [{**row, "row": str(i)} for i, row in enumerate(rows)]
