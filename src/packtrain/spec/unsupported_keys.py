"""What DeepSquare can do and packtrain cannot: named, never silently dropped.

An error where the job could not work without it, a warning where its result is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packtrain.spec.diagnostics import ERROR, WARNING, Report
from packtrain.spec.model_walk import Node
from packtrain.spec.models.field_types import Model
from packtrain.spec.models.steps import Container, Run
from packtrain.spec.models.workflow import Module, Workflow


@dataclass(frozen=True)
class Unsupported:
    severity: str
    sentence: str
    harmless: tuple[Any, ...] = (None, False)  # values that ask for nothing


TABLE: dict[tuple[type[Model], str], Unsupported] = {
    (Workflow, "virtualNetworks"): Unsupported(ERROR, "packtrain makes no networks between jobs", (None, [])),
    (Workflow, "enableLogging"): Unsupported(WARNING, "packtrain keeps the output of steps in any case", (None, True)),
    (Run, "customNetworkInterfaces"): Unsupported(ERROR, "packtrain makes no network interfaces", (None, [])),
    (Run, "mpi"): Unsupported(ERROR, "packtrain starts no MPI programs", (None, "none")),
    (Run, "network"): Unsupported(WARNING, "the command uses the machine's network", (None, "host")),
    (Run, "dns"): Unsupported(WARNING, "the command uses the machine's name servers", (None, [])),
    (Run, "mapUid"): Unsupported(WARNING, "the command runs under your own user id", (None,)),
    (Run, "mapGid"): Unsupported(WARNING, "the command runs under your own group id", (None,)),
    (Container, "deepsquareHosted"): Unsupported(ERROR, "packtrain cannot reach DeepSquare's own registry"),
    (Container, "x11"): Unsupported(WARNING, "there is no X11 display"),
    (Container, "apptainer"): Unsupported(WARNING, "packtrain runs containers with Apptainer only", (None, True)),
    (Module, "minimumResources"): Unsupported(WARNING, "the minimum is not compared with the job's resources", (None,)),
}


def apply(nodes: list[Node], report: Report) -> None:
    for node in nodes:
        for key, value in node.raw.items():
            row = TABLE.get((node.model, key))
            if row and value not in row.harmless:
                place = report.origin.key_place((*node.path, key))
                report.add(place, row.severity, f"{key} is not supported: {row.sentence}")
