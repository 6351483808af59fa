"""Keys of DeepSquare's format that packtrain does not support. They are reported, never ignored silently.

A key is an error if the job could not work without it, and a warning if the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packtrain.spec.diagnostics import ERROR, WARNING, DiagnosticReport
from packtrain.spec.model_walk import ModelNode
from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.steps import Container, RunAction
from packtrain.spec.models.workflow import Workflow


@dataclass(frozen=True)
class UnsupportedKey:
    """How an unsupported key is reported."""

    severity: str
    message: str
    accepted_values: tuple[Any, ...] = (None, False)  # values without effect, which are not reported


UNSUPPORTED_KEYS: dict[tuple[type[SpecModel], str], UnsupportedKey] = {
    (Workflow, "virtualNetworks"): UnsupportedKey(
        ERROR, "packtrain does not create networks between steps", (None, [])
    ),
    (Workflow, "enableLogging"): UnsupportedKey(WARNING, "packtrain always keeps the output of steps", (None, True)),
    (RunAction, "customNetworkInterfaces"): UnsupportedKey(
        ERROR, "packtrain does not create network interfaces", (None, [])
    ),
    (RunAction, "mpi"): UnsupportedKey(ERROR, "packtrain does not start MPI programs", (None, "none")),
    (RunAction, "network"): UnsupportedKey(WARNING, "the command uses the node's network", (None, "host")),
    (RunAction, "dns"): UnsupportedKey(WARNING, "the command uses the node's name servers", (None, [])),
    (RunAction, "mapUid"): UnsupportedKey(WARNING, "the command runs under your own user id", (None,)),
    (RunAction, "mapGid"): UnsupportedKey(WARNING, "the command runs under your own group id", (None,)),
    (Container, "x11"): UnsupportedKey(WARNING, "there is no X11 display"),
    (Container, "apptainer"): UnsupportedKey(WARNING, "packtrain runs containers with Apptainer only", (None, True)),
}


def report_unsupported_keys(nodes: list[ModelNode], report: DiagnosticReport) -> None:
    """Report every unsupported key of the document."""
    for node in nodes:
        for key, value in node.raw.items():
            row = UNSUPPORTED_KEYS.get((node.model, key))
            if row and value not in row.accepted_values:
                position = report.source_map.key_position((*node.path, key))
                report.add(position, row.severity, f"{key} is not supported: {row.message}")
