"""Code that is sent to the worker imports only the standard library of Python 3.9 and itself."""

import ast
import sys
from pathlib import Path

import pytest

import packtrain
from packtrain.engines.bundle import PLUGIN_PACKAGES, WORKER_MODULES, WORKER_PACKAGES, worker_files

NEWER_THAN_3_9 = {"tomllib", "compression", "annotationlib", "pathlib.types", "concurrent.interpreters"}
SHARED_NAMES = ("errors", "backoff", "fileutil", "formatting", "__version__")
SHARED_MODULES = {"packtrain.condor.classads"}
OWN_MODULES = {"packtrain"} | {f"packtrain.{name}" for name in (*WORKER_PACKAGES, *PLUGIN_PACKAGES, *SHARED_NAMES)}
NEED_TORCH = ("torch/sampler.py", "torch/streaming.py")  # only programs with torch import them
LAZY_IN_TORCH = {"torch", "numpy"}
SOURCE = Path(packtrain.__file__).parent
FILES = list(worker_files((*WORKER_PACKAGES, "plugin")))


def find_imports(source):
    """Yield (module, is_lazy); lazy imports are inside a function."""
    tree = ast.parse(source, feature_version=(3, 9))
    lazy_nodes = {
        id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in lazy_nodes) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "packtrain" else [module]
            yield from ((name, id(node) in lazy_nodes) for name in names)


def is_allowed(module, is_lazy, package):
    top = module.split(".")[0]
    if top == "packtrain":
        return ".".join(module.split(".")[:2]) in OWN_MODULES or module in SHARED_MODULES
    if package in NEED_TORCH and top == "torch":
        return True
    if package == "torch" and is_lazy and top in LAZY_IN_TORCH:
        return True
    return top in sys.stdlib_module_names and not {top, module} & NEWER_THAN_3_9


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.name}" for p in FILES])
def test_imports(path):
    name = f"{path.parent.name}/{path.name}"
    package = name if name in NEED_TORCH else "torch" if path.parent.name == "torch" else ""
    forbidden = [
        module for module, is_lazy in find_imports(path.read_text()) if not is_allowed(module, is_lazy, package)
    ]
    assert forbidden == [], f"{path} imports modules that a worker may not have"


def test_every_worker_package_is_checked():
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
def test_forbidden_imports_are_found(source, package):
    assert not all(is_allowed(module, is_lazy, package) for module, is_lazy in find_imports(source))


def test_newer_syntax_is_rejected():
    with pytest.raises(SyntaxError):
        list(find_imports("match x:\n  case 1: pass"))
