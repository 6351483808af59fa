"""Sources without comments and docstrings compile to the same programs, with the same line numbers."""

import ast
from pathlib import Path
from types import CodeType

import pytest

import packtrain
from packtrain.engines import bundle
from packtrain.engines.strip_source import strip_source

SOURCE_ROOT = Path(packtrain.__file__).parent
FILES = sorted({*bundle.worker_files(), *bundle.worker_files(bundle.PLUGIN_PACKAGES)})


class _WithoutStrings(ast.NodeTransformer):
    """Removes statements that are only a string."""

    def generic_visit(self, node):
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            remaining = [statement for statement in body if not _is_string(statement)]
            node.body = remaining or ([] if isinstance(node, ast.Module) else [ast.copy_location(ast.Pass(), body[0])])
        return node


def _is_string(statement):
    value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _describe_code(code):
    """Return everything in a code object but the column numbers."""
    constants = [
        _describe_code(value) if isinstance(value, CodeType) else (type(value), value) for value in code.co_consts
    ]
    lines = list(code.co_lines())
    return code.co_code, code.co_names, code.co_varnames, code.co_flags, code.co_firstlineno, lines, constants


def _strip_and_compare(source):
    tree = ast.fix_missing_locations(_WithoutStrings().visit(ast.parse(source)))
    stripped = strip_source(source)
    assert _describe_code(compile(tree, "x", "exec")) == _describe_code(compile(stripped, "x", "exec"))
    return stripped


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE_ROOT)))
def test_worker_files_compile_to_the_same_program(path):
    stripped = _strip_and_compare(path.read_text(encoding="utf-8"))
    assert '    """' not in stripped
    assert not [line for line in stripped.splitlines() if line.lstrip().startswith("#")]


def test_strings_with_hash_are_kept():
    source = 'a = "# no comment"  # one\nb = \'"# neither\'\nc = """\n# nor this\n"""\nd = f"{a!r}#"\ne = "\\"#"\n'
    assert _strip_and_compare(source) == source.replace("# one", "")


def test_body_with_only_a_docstring():
    source = 'class A(Exception):\n    """Text\n    on two lines."""\n\n\ndef f():\n    """More."""\n\n\nx = 1\n'
    assert _strip_and_compare(source) == "class A(Exception):\n    pass\n\n\n\ndef f():\n    pass\n\n\nx = 1\n"


def test_last_body_with_only_a_docstring():
    assert _strip_and_compare('def f():\n    """Text."""\n') == "def f():\n    pass\n"


def test_quotes_and_backslashes_in_docstrings():
    source = '"""A "quoted" \\""" word."""\n\nx = """kept"""\n\n\ndef f(y):\n    """Gives "it"."""\n    return y\n'
    assert _strip_and_compare(source) == '\n\nx = """kept"""\n\n\ndef f(y):\n\n    return y\n'


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE_ROOT)))
def test_worker_files_do_not_use_docstrings(path):
    assert "__doc__" not in path.read_text(encoding="utf-8")
