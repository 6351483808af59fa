"""packtrain: run PyTorch trainings on HTCondor pools and laptops, and survive preemption, bad nodes and slow data.

A *run* is one workflow file, submitted once; it consists of *jobs*. The *supervisor* submits *attempts* of each job
through an *engine* (this machine or an HTCondor pool). On the worker, the *agent* downloads inputs, runs the steps,
uploads checkpoints and outputs, and reports events. Start reading at `services.py` (how the parts are connected) or
docs/ARCHITECTURE.md (why they are built this way).

The Python API (docs/how-to/python.md) is imported when one of its names is first used; `__init__.pyi` declares it.
"""

import importlib
import logging

__version__ = "0.1.0"

_MODULE_BY_NAME = {
    "Job": "api",
    "JobResult": "api",
    "Run": "api",
    "fetch": "api",
    "get_run": "api",
    "list_runs": "api",
    "submit": "api",
    "FailedError": "errors",
    "NotFoundError": "errors",
    "PacktrainError": "errors",
    "UnavailableError": "errors",
    "UsageError": "errors",
    "WorkflowError": "spec.diagnostics",
}
__all__ = ["__version__", *_MODULE_BY_NAME]

logging.getLogger("packtrain").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
