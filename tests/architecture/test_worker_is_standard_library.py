"""What rides to the worker imports nothing but Python 3.9's standard library and itself."""

import ast
import sys
from pathlib import Path

import pytest

import packtrain
from packtrain.engines.bundle import PLUGIN_PACKAGES, WORKER_MODULES, WORKER_PACKAGES, worker_files

NEWER_THAN_3_9 = {"tomllib", "compression", "annotationlib", "pathlib.types", "concurrent.interpreters"}
SHARED = ("errors", "fileutil", "__version__")
SHARED_MODULES = {"packtrain.condor.classads"}
OWN = {"packtrain"} | {f"packtrain.{name}" for name in (*WORKER_PACKAGES, *PLUGIN_PACKAGES, *SHARED)}
LAZY_IN_TORCH = {"torch", "numpy"}
SOURCE = Path(packtrain.__file__).parent
FILES = list(worker_files((*WORKER_PACKAGES, "plugin")))


def imports_of(source):
    """Pairs of (module, whether it is imported inside a function)."""
    tree = ast.parse(source, feature_version=(3, 9))
    inner = {
        id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "packtrain" else [module]
            yield from ((name, id(node) in inner) for name in names)


def allowed(module, lazy, package):
    top = module.split(".")[0]
    if top == "packtrain":
        return ".".join(module.split(".")[:2]) in OWN or module in SHARED_MODULES
    if package == "torch/streaming.py" and top == "torch":  # whoever imports it has it
        return True
    if package == "torch" and lazy and top in LAZY_IN_TORCH:
        return True
    return top in sys.stdlib_module_names and not {top, module} & NEWER_THAN_3_9


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.name}" for p in FILES])
def test_imports(path):
    own = f"{path.parent.name}/{path.name}"
    package = own if own == "torch/streaming.py" else "torch" if path.parent.name == "torch" else ""
    bad = [module for module, lazy in imports_of(path.read_text()) if not allowed(module, lazy, package)]
    assert bad == [], f"{path} imports what a worker may not have"


def test_every_worker_package_is_looked_at():
    paths = {path.relative_to(SOURCE).as_posix() for path in FILES}
    names = paths | {path.partition("/")[0] for path in paths}
    assert set(WORKER_PACKAGES) | set(PLUGIN_PACKAGES) | set(WORKER_MODULES) <= names


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("import requests", ""),
        ("import tomllib", ""),
        ("from packtrain.spec import load", ""),
        ("from packtrain import cli", ""),
        ("from . import x", ""),
        ("import torch", "torch"),
        ("def f():\n  import torch", "transfer"),
        ("def f():\n  import pandas", "torch"),
    ],
)
def test_the_test_can_fail(source, package):
    assert not all(allowed(module, lazy, package) for module, lazy in imports_of(source))


def test_syntax_newer_than_3_9_is_refused():
    with pytest.raises(SyntaxError):
        list(imports_of("match x:\n  case 1: pass"))
