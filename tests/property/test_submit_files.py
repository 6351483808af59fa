"""Any text gives diagnostics or a workflow, never an exception, and values are the same as those of HTCondor."""

from __future__ import annotations

import os
from pathlib import Path

import htcondor2
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.condor.submitfile.convert import convert_text
from packtrain.condor.submitfile.job_table import JobTable
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.condor.submitfile.syntax.queue_statement import parse_queue
from packtrain.condor.submitfile.syntax.quoting import QuotingError, split_arguments, split_environment
from packtrain.condor.submitfile.syntax.submit_reader import parse_submit_description
from packtrain.spec.load import load_workflow_text

CONTEXT = SubmitContext(Path("/nonexistent"), {"HOME": "/home/me"})
TOKENS = """
executable arguments transfer_input_files transfer_output_files transfer_output_remaps environment request_memory
request_cpus request_gpus queue output error log initialdir +Attr MY.Attr universe container_image requirements if else
elif endif include defined version true from in matching $(Process) $(Cluster) $(x) $(x:1) $INT(x) $F(x) $ENV(HOME)
$(Step) $$(a) osdf:///a/b https://h/x ( ) [1:2] " ' = , ; \\ # @=e @e + - : { {job} ${env:X} x 1 4GB ../a /a/ data/ *
"""
PIECES = st.sampled_from(
    [*TOKENS.split(), " ", "\n", "\n", " = ", "\t", "\\\n", "queue 2\n", "executable = a\n", "é", "\x01"]
)
ANYTHING = st.lists(PIECES, max_size=40).map("".join)


def check(text: str) -> None:
    converted = convert_text(text, "j.sub", CONTEXT)
    result = converted.load_result
    assert (result.workflow is None) == any(problem.is_error for problem in result.diagnostics)
    assert all(problem.line >= 1 and problem.message for problem in result.diagnostics)
    if result.workflow is not None:
        printed = load_workflow_text(converted.to_workflow_text("j.sub"))
        assert printed.workflow is not None, printed.diagnostics
        assert printed.workflow.model_dump() == result.workflow.model_dump()


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_text(text):
    check(text)


@given(ANYTHING)
@settings(max_examples=500, deadline=None)
def test_random_tokens(text):
    check(text)


@given(ANYTHING)
@settings(max_examples=300, deadline=None)
def test_random_tokens_in_a_valid_file(text):
    check(f"executable = run.sh\n{text}\nqueue x in (a b)\n")


@given(st.text(alphabet=" ab'\"\\;=\t$", max_size=30))
@settings(deadline=None)
def test_arguments_and_variables(text):
    for split in (split_arguments, split_environment):
        try:
            split(text)
        except QuotingError as error:
            assert str(error)


NAMES = ("a", "b", "c", "d", "e")
VALUES = st.sampled_from(["", "x", "two words", "/p/q.tar.gz", "3", "a=b", "x # y", '"q"'])


@st.composite
def submit_lines(draw):
    """Lines in which a name refers only to earlier names: HTCondor itself hangs on cycles."""
    lines = []
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(NAMES))
        earlier = [*NAMES[: NAMES.index(name)], "nothing"]
        parts = draw(st.lists(st.one_of(VALUES, _references(earlier)), max_size=3))
        value = draw(st.sampled_from([" ", "", " \\\n   "])).join(parts)
        lines.append(f"{draw(st.sampled_from(['', '  ']))}{name}{draw(st.sampled_from(['=', ' = ']))}{value}")
        lines += draw(st.sampled_from([[], ["# a comment"], [""]]))
    return lines


def _references(names):
    # $F… functions sometimes corrupt the memory of htcondor2 25.14; unit tests cover them.
    forms = ["$({})", "$({}:or)", "$({}:)", "$({}:$(nothing:x))", "$ENV(HOME)", "$(Process)"]
    return st.builds(lambda form, name: form.format(name), st.sampled_from(forms), st.sampled_from(names))


@given(submit_lines())
@settings(max_examples=300, deadline=None)
def test_values_as_in_htcondor(lines):
    text = "\n".join([*lines, "queue\n"])
    theirs = htcondor2.Submit(text)
    ours = parse_submit_description(text, "j.sub", CONTEXT)
    assert ours.problems == []
    table = JobTable(ours, os.environ)
    for name in dict(theirs):
        assert table.value_for_job(ours.commands[name].value, 0).strip() == _expand(theirs, name).strip(), text


def _expand(submit, name):
    """Return the value of a key; HTCondor has no key for empty values."""
    try:
        return submit.expand(name)
    except KeyError:
        return ""


CONDITIONS = st.sampled_from(
    ["true", "false", "!true", "1", "0", "yes", "defined a", "! defined a", "defined b", "version > 8.1", "$(a:0)"]
)


@given(st.lists(st.tuples(CONDITIONS, CONDITIONS, st.booleans()), max_size=3), st.booleans())
@settings(deadline=None)
def test_conditions_as_in_htcondor(branches, defined):
    lines = ["a = 1"] if defined else ["z = 1"]
    for number, (first, second, nested) in enumerate(branches):
        inner = [f"if {second}", f"n{number} = 1", "endif"] if nested else []
        lines += [f"if {first}", f"x{number} = 1", *inner, f"elif {second}", f"y{number} = 1", "else", "b = 1", "endif"]
    text = "\n".join([*lines, "queue\n"])
    ours = parse_submit_description(text, "j.sub", CONTEXT)
    assert sorted(ours.commands) == sorted(dict(htcondor2.Submit(text))), text


ITEMS = st.lists(st.text(alphabet="ab ,\t.", min_size=1, max_size=8), min_size=1, max_size=1)
HEADS = st.sampled_from(["a", "a,b", "a b", "a, b, c", "3 a,b", ""])


@given(HEADS, st.sampled_from(["in", "from"]), ITEMS)
@settings(max_examples=300, deadline=None)
def test_items_as_in_htcondor(head, keyword, items):
    arguments = f"{head} {keyword} ({items[0]})"
    if not items[0].strip(" ,\t"):
        return
    theirs = [dict(row) for row in htcondor2.Submit(f"queue {arguments}").itemdata(arguments)]
    ours = parse_queue(arguments, 1, CONTEXT, lambda end: None)
    assert [dict(zip(ours.variables, row, strict=True)) for row in ours.rows] == theirs, arguments
