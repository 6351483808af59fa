"""The jobs of a submit file as a table, with a column for each value that differs from job to job.

Texts are templates: they may contain placeholders (`macros.placeholder`) for `job`, `run` and the columns of the table.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packtrain.condor.submitfile.syntax import macros
from packtrain.condor.submitfile.syntax.macros import PLACEHOLDER, PerJobValueError, placeholder
from packtrain.condor.submitfile.syntax.queue_statement import QueueStatement
from packtrain.condor.submitfile.syntax.submit_reader import SubmitDescription
from packtrain.spec.placeholders import BUILTIN_PLACEHOLDERS

_RESERVED_NAMES = (*BUILTIN_PLACEHOLDERS, "include", "exclude")
_CONDOR_MACROS = {
    "cluster": "$(Cluster)",
    "clusterid": "$(Cluster)",
    "process": "$(Process)",
    "procid": "$(Process)",
    "jobid": "$(Cluster).$(Process)",
}
_UNSUPPORTED_MACROS = ("submit_time", "year", "month", "day", "node")


class JobTable:
    """One row per job. Columns come from the `queue` statement, or are derived from functions of the job's number."""

    def __init__(self, description: SubmitDescription, environment: Mapping[str, str]) -> None:
        self._description, self._environment = description, environment
        self._queue = description.queue or QueueStatement()
        self._column_names = {variable.lower(): _column_name(variable) for variable in self._queue.variables}
        rows = self._queue.rows or ((),)
        self._columns: dict[str, list[str]] = {
            column: [row[i] for row in rows for _ in range(self._queue.count)]
            for i, column in enumerate(self._column_names.values())
        }
        self._has_derived_columns = False  # rows may then differ although their queue items do not
        self.undefined_macros: set[str] = set()

    def __len__(self) -> int:
        return max(len(self._queue.rows), 1) * self._queue.count

    @property
    def template_fields(self) -> tuple[str, ...]:
        """Names that a workflow replaces where they are in braces."""
        return (*BUILTIN_PLACEHOLDERS, *self._columns)

    # Submit file to template

    def to_template(self, text: str) -> str:
        """Expand macros, with placeholders for everything that differs from job to job. Raises MacroError."""
        try:
            return macros.expand(text, self._symbolic_value, self._environment)
        except PerJobValueError:
            return self.column_template("value", [self.value_for_job(text, job) for job in range(len(self))])

    def value_for_job(self, text: str, job_index: int) -> str:
        """Expand macros for one job; only the run stays a placeholder. Raises MacroError."""
        return macros.expand(text, lambda name: self._job_value(name, job_index), self._environment)

    def to_condor_text(self, text: str) -> str:
        """Expand macros, but leave $(Cluster) and $(Process) to HTCondor.

        Raises MacroError, or PerJobValueError if the text depends on the queue item.
        """

        def lookup(name: str) -> str | None:
            return placeholder(name) if name in _CONDOR_MACROS else self._symbolic_value(name)

        expanded = macros.fill_placeholders(macros.expand(text, lookup, self._environment), _CONDOR_MACROS)
        if PLACEHOLDER.search(expanded):
            raise PerJobValueError("it differs from job to job")
        return expanded

    def values_per_job(self, template: str) -> list[str]:
        """Return the text of a template for each job; only the run stays a placeholder."""
        if not PLACEHOLDER.search(template):
            return [template] * len(self)
        return [macros.fill_placeholders(template, self._column_values(job)) for job in range(len(self))]

    def column_template(self, name: str, values: Sequence[str]) -> str:
        """Return a template for a text that is given for each job, and add a column if necessary.

        Args:
            name: The name of a new column.
            values: The text for each job.
        """
        if len(set(values)) == 1:
            return values[0]
        for column, column_values in self._columns.items():
            if column_values == list(values):
                return placeholder(column)
        if any(PLACEHOLDER.search(value) for value in values):
            raise macros.MacroError("$(Cluster) cannot be combined with a function of the job's number")
        self._has_derived_columns = True
        column = unique_name(name, "", self.template_fields)
        self._columns[column] = list(values)
        return placeholder(column)

    def has_different_values(self, template: str) -> bool:
        """Return whether the text of a template differs between jobs."""
        return len(set(self.values_per_job(template))) > 1

    # Template to workflow

    def to_workflow_text(self, template: str) -> str:
        """Return a template in the syntax of workflows. Raises MacroError if the text itself has such a field."""
        for field in self.template_fields:
            if f"{{{field}}}" in template:
                raise macros.MacroError(f"{{{field}}} has a special meaning in workflows; rename it")
        return PLACEHOLDER.sub(lambda match: f"{{{match.group(1)}}}", template)

    def to_matrix(self) -> dict[str, Any]:
        """Return the keys `count` and `matrix` of the workflow."""
        if not self._columns:
            return {"count": len(self)} if len(self) > 1 else {}
        columns, count = self._columns, self._queue.count
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if not self._has_derived_columns:
            rows = rows[::count]
        only_values = [row[name] for name in columns for row in rows] if len(columns) == 1 else []
        if only_values and len(set(only_values)) == len(only_values):
            document: dict[str, Any] = {"matrix": {next(iter(columns)): only_values}}
        else:
            document = {"matrix": {"include": _make_rows_unique(rows)}}
        return document if self._has_derived_columns or count == 1 else {**document, "count": count}

    # Values of macros

    def _symbolic_value(self, name: str) -> str | None:
        if name in self._column_names:
            return placeholder(self._column_names[name])
        if name in ("step", "row", "itemindex") and name not in self._description.commands:
            return self._counter_template(name)
        return self._common_value(name, placeholder("job"))

    def _job_value(self, name: str, job_index: int) -> str | None:
        if name in self._column_names:
            return self._columns[self._column_names[name]][job_index]
        if name in ("step", "row", "itemindex") and name not in self._description.commands:
            return str(job_index % self._queue.count if name == "step" else job_index // self._queue.count)
        return self._common_value(name, str(job_index))

    def _common_value(self, name: str, job: str) -> str | None:
        if name in ("process", "procid"):
            return job
        if name in ("cluster", "clusterid"):
            return placeholder("run")
        if name == "jobid":
            return f"{placeholder('run')}.{job}"
        value = self._description.raw_value(name)
        if value is None and name == "submit_file":
            return self._description.name
        if value is None and name in _UNSUPPORTED_MACROS:
            raise macros.MacroError(f"$({name.upper()}) is not supported")
        if value is None:
            self.undefined_macros.add(name)
        return value

    def _counter_template(self, name: str) -> str:
        """Return the template of $(Step), which counts jobs of one item, or of $(Row), which counts items."""
        count, n_rows = self._queue.count, len(self._queue.rows)
        if name == "step":
            values = [str(job % count) for job in range(len(self))]
        else:
            values = [str(job // count) for job in range(len(self))]
        if len(self) > 1 and (n_rows == 0) == (name == "step") and (n_rows == 0 or count == 1):
            return placeholder("job")
        return self.column_template(name, values)

    def _column_values(self, job_index: int) -> dict[str, str]:
        return {"job": str(job_index), **{name: values[job_index] for name, values in self._columns.items()}}


def unique_name(name: str, separator: str, taken_names: Collection[str]) -> str:
    """Return a name that is not taken, with the lowest possible number appended if necessary."""
    candidates = (f"{name}{separator}{number}" for number in itertools.count(2))
    return name if name not in taken_names else next(other for other in candidates if other not in taken_names)


def _column_name(variable: str) -> str:
    name = re.sub(r"\W", "_", variable, flags=re.ASCII)
    return f"{name}_" if name.lower() in _RESERVED_NAMES else name


def _make_rows_unique(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Add a number to each row if rows are equal, because a matrix has each point once."""
    if len({tuple(row.items()) for row in rows}) == len(rows):
        return rows
    return [{**row, "row": str(i)} for i, row in enumerate(rows)]
