"""Text from outside never controls a terminal, however it is cut; only the colors of a program's output pass."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from packtrain.formatting import CONTROL_CHARS, replace_control_chars
from packtrain.views.terminal import ColorFilter, make_console

COLOR = re.compile(r"\x1b\[[0-9;:]*m")
fragments = st.sampled_from(
    ["\x1b", "\x1b[", "\x1b]52;c;YQ==", "\x1b\\", "\x07", "\x9b", "\x9d", "\x9c", "31", ";", "m", "H", "2J", "\x1bc",
     "\x1bP", "\n", "\t", "\r", "\x08", "\u202e", "\x7f", "text", "[", "]", "é", "🙂", "\x1b[1;31m", "\x1b[0m"]
)  # fmt: skip
texts = st.lists(fragments | st.text(max_size=3), max_size=20).map("".join)


def filter_parts(parts: list[str]) -> str:
    color_filter = ColorFilter()
    return "".join(map(color_filter.feed, parts)) + color_filter.finish()


@given(text=texts, cuts=st.lists(st.integers(0, 99), max_size=6))
def test_filtered_text_does_not_depend_on_the_cuts(text, cuts):
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    assert filter_parts([text[a:b] for a, b in itertools.pairwise(edges)]) == filter_parts([text])


@given(text=texts)
def test_only_colors_remain(text):
    filtered = filter_parts([text])
    rest = COLOR.sub("", filtered).replace("\n", "").replace("\t", "")
    assert not CONTROL_CHARS.search(rest)
    assert filter_parts([filtered]) == filtered


@given(text=st.text().filter(lambda text: not CONTROL_CHARS.search(text)))
def test_printable_text_is_kept(text):
    assert filter_parts([text]) == replace_control_chars(text) == text


@pytest.mark.parametrize(
    ("text", "filtered"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38:5:1mred", "\x1b[38:5:1mred\x1b[0m"),
        ("\x9b31mred\x1b[m", "\x1b[31mred\x1b[m"),
        ("\x1b]52;c;cm0gLXJm\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1bP1$r\x1b\\after", "after"),
        ("\x1b]0;unfinished\nnext line", "\nnext line"),
        ("\x1b[2J\x1b[H\x1b[?25lcursor", "cursor"),
        ("\x1bcreset", "reset"),
        ("back\x08\rreturn", r"back\x08\x0dreturn"),
        ("\u202eabc", r"\u202eabc"),
        ("end\x1b[3", r"end\x1b[3"),
    ],
)
def test_color_filter(text, filtered):
    assert filter_parts([text]) == filtered
    assert filter_parts(list(text)) == filtered


@given(text=texts)
def test_console(text):
    """The output of a console with colors has no control sequence but rich's own colors."""
    out = io.StringIO()
    console = make_console(file=out, force_terminal=True, width=80)
    for renderable in (text, Text(text, "red")):
        console.print(renderable)
    assert not CONTROL_CHARS.search(re.sub(r"\x1b\[[0-9;]*m|[\n\t]", "", out.getvalue()))


def test_console_prints_markup_as_it_is():
    out = io.StringIO()
    make_console(file=out, width=80).print(":100: [red]text[/red] [link=http://x]y[/link]")
    assert out.getvalue() == ":100: [red]text[/red] [link=http://x]y[/link]\n"
