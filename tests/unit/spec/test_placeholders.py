"""Placeholders such as `{job}` in texts of a workflow."""

import pytest

from packtrain.spec import placeholders

VALUES = {"job": "7", "lr": "0.1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("out/{job}", "out/7"),
        ("{lr}-{lr}", "0.1-0.1"),
        ("${lr}", "${lr}"),
        ("$lr {lr}", "$lr 0.1"),
        ("{{lr}}", "{{lr}}"),
        ("{unknown}", "{unknown}"),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("{ lr }", "{ lr }"),
        ("{a,b}{lr}", "{a,b}0.1"),
    ],
)
def test_fill_placeholders(text, expected):
    assert placeholders.fill_placeholders(text, VALUES) == expected


def test_values_are_not_filled_again():
    assert placeholders.fill_placeholders("{a}", {"a": "{b}", "b": "x"}) == "{b}"
