"""Sources without comments and docstrings are the same programs, line by line."""

import ast
from pathlib import Path
from types import CodeType

import pytest

import packtrain
from packtrain.engines import bundle
from packtrain.engines.strip_source import strip_source

HOME = Path(packtrain.__file__).parent
FILES = sorted({*bundle.worker_files(), *bundle.worker_files(bundle.PLUGIN_PACKAGES)})


class _WithoutStrings(ast.NodeTransformer):
    """Leaves out statements that are nothing but a string."""

    def generic_visit(self, node):
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not _is_text(one)]
            node.body = kept or ([] if isinstance(node, ast.Module) else [ast.copy_location(ast.Pass(), body[0])])
        return node


def _is_text(statement):
    value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _told(code):
    """All that makes a code object, without columns."""
    constants = [_told(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts]
    lines = list(code.co_lines())
    return code.co_code, code.co_names, code.co_varnames, code.co_flags, code.co_firstlineno, lines, constants


def _same(source):
    tree = ast.fix_missing_locations(_WithoutStrings().visit(ast.parse(source)))
    bare = strip_source(source)
    assert _told(compile(tree, "x", "exec")) == _told(compile(bare, "x", "exec"))
    return bare


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_what_rides_along_stays_the_same_program(path):
    bare = _same(path.read_text(encoding="utf-8"))
    assert '    """' not in bare
    assert not [line for line in bare.splitlines() if line.lstrip().startswith("#")]


def test_strings_that_look_like_comments_stay():
    source = 'a = "# no comment"  # one\nb = \'"# neither\'\nc = """\n# nor this\n"""\nd = f"{a!r}#"\ne = "\\"#"\n'
    assert _same(source) == source.replace("# one", "")


def test_a_body_of_nothing_but_words_passes():
    source = 'class A(Exception):\n    """Words\n    on two lines."""\n\n\ndef f():\n    """More."""\n\n\nx = 1\n'
    assert _same(source) == "class A(Exception):\n    pass\n\n\n\ndef f():\n    pass\n\n\nx = 1\n"


def test_the_last_body_of_a_file_passes_too():
    assert _same('def f():\n    """Words."""\n') == "def f():\n    pass\n"


def test_a_quote_or_a_backslash_in_the_words_does_not_end_them():
    source = '"""A "quoted" \\""" word."""\n\nx = """kept"""\n\n\ndef f(y):\n    """Gives "it"."""\n    return y\n'
    assert _same(source) == '\n\nx = """kept"""\n\n\ndef f(y):\n\n    return y\n'


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_nothing_that_rides_along_asks_for_its_words(path):
    assert "__doc__" not in path.read_text(encoding="utf-8")
