"""Finds the DAG that a submit file belongs to, and the macros that DAGMan would set in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from packtrain.condor.submitfile.syntax.context import SubmitContext

DAGMAN_MACROS = frozenset({"job", "retry", "failed_count", "dag_status", "dagmanjobid", "dag_parent_names"})
"""What DAGMan sets for every node."""

_NODE_LINE = re.compile(r"(?:JOB|NODE|FINAL|SERVICE|PROVISIONER)\s+(\S+)\s+(\S+)", re.IGNORECASE)
_VARS_LINE = re.compile(r"VARS\s+(\S+)\s+(.*)", re.IGNORECASE)
_VARIABLE = re.compile(r"([A-Za-z_][\w.]*)\s*=\s*\"")
_PATTERNS = ("*.dag", "../*.dag")


@dataclass(frozen=True)
class DagVariables:
    """A DAG with a node that uses a submit file, and the macros that it sets there, in lower case."""

    dag: str
    names: frozenset[str]


def find_dag_variables(context: SubmitContext, submit_file: str) -> DagVariables | None:
    """Return the first DAG next to a submit file, or in the folder above, that has a node with this file."""
    for dag in (path for pattern in _PATTERNS for path in context.match_paths(pattern, "files")):
        try:
            lines = [line.strip() for line in context.read_text(dag).splitlines()]
        except OSError:
            continue
        node_lines = [match.groups() for line in lines if (match := _NODE_LINE.match(line))]
        nodes = {node for node, file in node_lines if PurePosixPath(file).name == PurePosixPath(submit_file).name}
        if nodes:
            return DagVariables(dag, DAGMAN_MACROS | _variable_names(lines, nodes))
    return None


def _variable_names(lines: list[str], nodes: set[str]) -> frozenset[str]:
    names: set[str] = set()
    for line in lines:
        match = _VARS_LINE.match(line)
        if match and (match.group(1) in nodes or match.group(1).upper() == "ALL_NODES"):
            names |= {name.lower() for name in _VARIABLE.findall(match.group(2))}
    return frozenset(names)
