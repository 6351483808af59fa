"""/bin/sh runs a rendered task as the manifest describes it, or the task is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.task_shell import UnsupportedSyntaxError, translate_command
from packtrain.pixi_workspace.tasks import TaskRenderer

PRINT_ARGUMENTS = f"{sys.executable} -I -S -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
# What shells give a meaning, in any order.
WORDS = [
    "a",
    "echo",
    "'",
    '"',
    "$",
    "$A",
    "${A}",
    "\\",
    "#",
    "=",
    "*",
    "~",
    "!",
    "é",
    "if",
    "then",
    "[[",
    "{",
    "}",
    "2>&1",
]
OPERATORS = [" ", "\n", "&&", "||", "|", ";", "&", "$(", ")", "(", "`", ">", ">>", "&>", "|&", "<", "<<", "${A:-b}"]
SHELL_TEXT = st.lists(st.sampled_from(WORDS + OPERATORS), max_size=8).map("".join)


def run_shell(*scripts):
    """Run each script with a shell of its own; return what they print."""
    return [
        subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout
        for script in scripts
    ]


@settings(max_examples=15)
@given(st.lists(TEXT, max_size=4))
def test_arguments_arrive_unchanged(args):
    (command,) = TaskRenderer({"show": PRINT_ARGUMENTS}, "default", "linux-64").render("show", args)
    (out,) = run_shell(command.command)
    assert json.loads(out) == args


@settings(max_examples=40)
@given(st.lists(st.text("ab []\t.=", max_size=6), max_size=4))
def test_list_of_arguments(args):
    """Pixi quotes arguments with blanks and brackets; it leaves the shell's own characters to the shell."""
    (command,) = TaskRenderer({"show": {"cmd": ["printf", "%s,", "x", *args]}}, "default", "linux-64").render("show")
    (out,) = run_shell(command.command)
    assert out == "".join(f"{arg}," for arg in ["x", *args])


@settings(max_examples=40)
@given(st.dictionaries(st.from_regex(r"[A-Z]{1,5}_V", fullmatch=True), TEXT, max_size=3))
def test_variables_have_their_values(variables):
    """Also those that a shell would expand, if they are not set: `$` alone, backslashes at the end, quotes."""
    tasks = {"show": {"cmd": "env", "env": {**variables, "PLAIN_V": "plain"}}}
    try:
        (command,) = TaskRenderer(tasks, "default", "linux-64").render("show")
    except PixiError:
        assert any(set("`$\\{") & set(value) for value in variables.values())
        return
    expanded = {variable.key: variable.value for variable in command.env}
    assert expanded.items() >= {key: v for key, v in variables.items() if not set("$`\\") & set(v)}.items()


@settings(max_examples=150)
@given(SHELL_TEXT)
def test_accepted_commands_are_valid_in_sh(text):
    """An accepted command has no syntax error, and only line breaks were changed."""
    try:
        translated = translate_command(text)
    except UnsupportedSyntaxError as error:
        assert str(error).startswith(("uses ", "has "))
        return
    subprocess.run(["/bin/sh", "-n", "-c", translated], check=True)
    assert "".join(translated.split()) == "".join(text.replace("\\\n", "").split())


ACCEPTED = {
    "python train.py --lr 0.1": None,
    "A=1 python train.py && echo done || exit 3": None,
    "python -c \"print('x'); print(1)\" | tee log.txt 2>&1": None,
    "echo $(git rev-parse $(echo HEAD)) > version.txt": None,
    'echo "$HOME/${USER}" $? a$ "a$"': None,
    "rm -rf build/*\n  && cp -r a b": "rm -rf build/* && cp -r a b",
    "echo a &&\n  echo b": "echo a && echo b",
    "python x.py \\\n  --flag": "python x.py   --flag",
    "echo a;\necho b": "echo a; echo b",
    "echo 'it''s' a#b if then": None,
    "! grep a b && > empty;": None,
}
REFUSED = {
    "sleep 1 & wait": "uses `&`",
    "make &> log": "uses `&>`",
    "make |& tee log": "uses `|&`",
    "cat << EOF": "uses `<<`",
    "(cd a && make)": "uses `(`",
    "f() { echo; }": "uses `(`",
    "echo `date`": "uses ```",
    'echo "`date`"': "uses ```",
    "echo ${A:-b}": "uses `${` with more than a name",
    "echo $((1 + 2))": "uses `$((`",
    "echo $1": "uses `$1`",
    "echo 'a": "has a quote without its end",
    'echo "a': "has a quote without its end",
    "echo $(date": "has a `$(` without `)`",
    "echo a # b": "uses `#`",
    "echo a\necho b": "has several lines without `&&` or `;` between them",
    "if true; then echo; fi": "uses `if`",
    "[[ -e x ]] && echo": "uses `[[`",
    "echo a && { echo b; }": "uses `{`",
    "&& echo a": "has `&&` without a command or file beside it",
    "echo a |": "has `|` without a command or file beside it",
    "echo a; ; echo b": "has `;` without a command or file beside it",
    "echo a >": "has `>` without a command or file beside it",
    "! ! a": "has `!` without a command or file beside it",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text):
    translated = translate_command(text)
    assert translated == (ACCEPTED[text] or text)
    subprocess.run(["/bin/sh", "-n", "-c", translated], check=True)


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    with pytest.raises(UnsupportedSyntaxError) as caught:
        translate_command(text)
    assert str(caught.value) == REFUSED[text]
