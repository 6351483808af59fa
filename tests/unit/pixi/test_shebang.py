"""The first lines of scripts: the kernel reads 127 bytes and splits them at blanks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from packtrain.pixi.prefix_replacement import replace_in_text, shebang_line
from packtrain.pixi.scripts import make_script, parse_entry_points
from packtrain.transfer.archive.byte_stream import stream_from_bytes

LONG = b"/" + b"x" * 150


def replace(text, prefix, placeholder=b"/old"):
    stream = replace_in_text(stream_from_bytes(text), placeholder, prefix)
    return b"".join(bytes(chunk) for chunk in iter(stream.read_chunk, memoryview(b"")))


@pytest.mark.parametrize(
    ("line", "prefix", "expected"),
    [
        (b"#!/old/bin/python -I\n", b"/new", b"#!/new/bin/python -I\n"),
        (
            b"#!/old/bin/python3.12 -I\n",
            LONG,
            b"#!/bin/sh\n'''exec' \"" + LONG + b'/bin/python3.12" -I "$0" "$@" #\'\'\'\n',
        ),
        (b"#!/old/bin/perl -w\n", LONG, b"#!/usr/bin/env perl -w\n"),
        (b"#!/old/bin/perl -w\n", b"/a b", b"#!/usr/bin/env perl -w\n"),
        (b"#!/old/bin/python\n", b"/a b", b"#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\" #'''\n"),
        (b"#!/bin/sh\n", b"/a b", b"#!/bin/sh\n"),
        (b"# /old\n", LONG, b"# " + LONG + b"\n"),
        (b"#!/old/bin/sh", LONG, b"#!/usr/bin/env sh"),
        (b"", b"/new", b""),
    ],
)
def test_first_line(line, prefix, expected):
    assert replace(line, prefix) == expected
    assert replace(line + b"x /old y\n", prefix) == expected + b"x " + prefix + b" y\n"


@pytest.mark.parametrize("name", ["short", "x" * 140, "with blank"])
def test_scripts_start(tmp_path, name):
    """A script starts Python whatever the length of its path, and with blanks in it."""
    interpreter = tmp_path / name / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    (tmp_path / "tool.py").write_text(
        "import sys\nclass App:\n    @staticmethod\n    def main(): print(sys.argv[1:])\n"
    )
    script_name, content = make_script("tool = tool:App.main", str(interpreter))
    script = tmp_path / script_name
    script.write_bytes(content)
    script.chmod(0o755)
    environ = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    result = subprocess.run([script, "a b"], stdout=subprocess.PIPE, env=environ, text=True, check=True)
    assert result.stdout == "['a b']\n"


def test_shebang_of_the_longest_path():
    assert shebang_line("/" + "x" * 124).startswith("#!/x")
    assert shebang_line("/" + "x" * 125).startswith("#!/bin/sh")


def test_entry_points():
    text = "[console_scripts]\na = m:f\nb=m.n:C.f [extra]\n# c = m:f\n[other]\nd = m:f\n[gui_scripts]\ne = m:f\n"
    assert [make_script(line, "/p")[0] for line in parse_entry_points(text)] == ["a", "b", "e"]


@pytest.mark.parametrize("entry_point", ["tool", "tool = module", "tool = m:f()", "tool = m:f; import os", ""])
def test_bad_entry_point(entry_point):
    with pytest.raises(ValueError, match="is not an entry point"):
        make_script(entry_point, "/p")
