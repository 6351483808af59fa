"""Parsing YAML into values with positions. Errors become diagnostics with positions, never exceptions."""

import pytest

from packtrain.spec import yaml_loader
from packtrain.spec.diagnostics import Position


def parse(text):
    return yaml_loader.parse_yaml(text, "w.yaml")


def only_diagnostic(text):
    (diagnostic,) = parse(text).diagnostics
    return diagnostic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-3", -3),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("0.10", 0.1),
        ("true", True),
        ("~", None),
        ("yes", "yes"),
        ("on", "on"),
        ("0755", "0755"),
        ("'8'", "8"),
        ("2001-01-01", "2001-01-01"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("e5", "e5"),
    ],
)
def test_plain_scalars(text, value):
    document = parse(f"a: {text}")
    assert document.value == {"a": value}
    assert type(document.value["a"]) in (type(value), yaml_loader.IntWithText, yaml_loader.FloatWithText)
    assert document.diagnostics == ()


def test_numbers_keep_their_text():
    values = parse("[0.10, 1e-3, 0x1F]").value
    assert [value.text for value in values] == ["0.10", "1e-3", "0x1F"]


def test_positions():
    document = parse("a:\n  b: [x, yy]\n")
    assert document.source_map.position(("a", "b", 1)) == Position(2, 10)
    assert document.source_map.key_position(("a", "b")) == Position(2, 3)


def test_position_of_absent_key():
    """An absent key has the position of its nearest parent."""
    assert parse("a:\n  b: 1\n").source_map.position(("a", "zzz", 3)) == Position(2, 3)


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        (b"a: 1\nb: \xff\n", 2, 4, "0xff is not UTF-8"),
        ("a: 1\nb: \0", 2, 4, "'\\x00' is not allowed"),
        ("a: 1\na: 2\n", 2, 1, "duplicate key 'a', first used in line 1"),
        ("a: [1\nb: 2\n", 2, 2, "not valid YAML"),
        ("a: !!python/object:os.system x", 1, 4, "is not supported"),
        ("a: !secret x", 1, 4, "is not supported"),
        ("? [1]\n: x\n", 1, 3, "not plain text"),
        ("", 1, 1, "empty"),
        ("--- 1\n--- 2\n", 2, 1, "another document"),
        ('a: "\\ud800"', 1, 4, "not a character"),
        ('a: "\\U99999999"', 1, 1, "not valid YAML"),
        ("a: &x [*x]", 1, 4, "refers to something that contains it"),
        ("a: &x {<<: *x}", 1, 4, "refers to something that contains it"),
        ("a: {<<: 3}", 1, 9, "`<<` takes a mapping"),
        ("a: *nowhere", 1, 4, "undefined alias"),
        ("\t- x", 1, 1, "not valid YAML"),
    ],
)
def test_bad_yaml(text, line, column, expected):
    diagnostic = only_diagnostic(text)
    assert expected in diagnostic.message
    assert (diagnostic.line, diagnostic.column) == (line, column)


def test_nesting_limit():
    assert "nests deeper" in only_diagnostic("[" * 5000).message


def test_size_limit():
    assert "bytes; a workflow may have at most" in only_diagnostic("#" * (yaml_loader.MAX_FILE_BYTES + 1)).message


def test_alias_bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases (*) expanded" in only_diagnostic("\n".join(lines)).message


def test_merge_keys():
    document = parse("base: &b {x: 1, y: 2}\nmore: &m {<<: *b, z: 4}\nhere: {<<: [*m], x: 9}\n")
    assert document.value["here"] == {"x": 9, "y": 2, "z": 4}
    assert document.diagnostics == ()


def test_byte_order_mark():
    assert parse(b"\xef\xbb\xbfa: 1").value == {"a": 1}
