"""The parser of submit files: values of commands, and errors with their lines."""

from __future__ import annotations

import pytest

from packtrain.condor.submitfile.commands import KNOWN_COMMANDS
from packtrain.condor.submitfile.job_table import JobTable
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.condor.submitfile.syntax.submit_reader import parse_submit_description


@pytest.fixture
def parse(tmp_path):
    def parse_text(text):
        return parse_submit_description(text, "j.sub", SubmitContext(tmp_path, {"USER": "me"}), KNOWN_COMMANDS)

    return parse_text


def values(description):
    return {name: command.value for name, command in description.commands.items()}


def messages(description):
    return [str(problem) for problem in description.problems]


def test_comments_continuations_and_blocks(parse):
    description = parse("# c\na = 1 \\\n   2\nb @=end\n  one\n two\n@end\n+Attr = 3\nMY.Other = 4\n-Attr\nqueue\n")
    assert values(description) | {"+attr": "3"} == {"a": "1 2", "b": "one\ntwo", "+other": "4", "+attr": "3"}
    assert description.commands["b"].line == 4


def test_attribute_is_removed(parse):
    assert values(parse("+A = 1\n-A = \nqueue\n")) == {}


def test_self_reference(parse):
    assert values(parse("x = a\nx = $(x) b\nqueue\n")) == {"x": "a b"}


def test_command_set_twice(parse):
    description = parse("requirements = A\nother = 1\nother = 2\n\nrequirements = B\nqueue\n")
    assert values(description)["requirements"] == "B"
    assert messages(description) == [
        "j.sub:5:1: warning: requirements is set again; HTCondor ignores line 1; join both with &&"
    ]


def test_includes(parse, tmp_path):
    (tmp_path / "more.sub").write_text("b = 2\nwrong line\n")
    description = parse("a = 1\ninclude : more.sub\ninclude ifexist : none.sub\nqueue\n")
    assert values(description) == {"a": "1", "b": "2"}
    assert messages(description) == ["j.sub:2:1: 'wrong line' is not a valid line; write KEY = VALUE"]


def test_recursive_include(parse, tmp_path):
    (tmp_path / "loop.sub").write_text("include : loop.sub\n")
    assert "nested more than 8 deep" in messages(parse("include : loop.sub\nqueue\n"))[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\n", "j.sub:2:1: there is no `queue` statement"),
        ("a b = 1\nqueue\n", "j.sub:1:1: 'a b = 1' is not a valid line"),
        ("qeue 5\nqueue\n", "did you mean 'queue'?"),
        ("if 1 == 1\nendif\nqueue\n", "j.sub:1:1: HTCondor does not support the condition '1 == 1'"),
        ("if true\nqueue\n", "j.sub:1:1: this `if` has no `endif`"),
        ("endif\nqueue\n", "j.sub:1:1: there is no matching `if`"),
        ("if true\nelse\nelse\nendif\nqueue\n", "j.sub:3:1: there is no matching `if`"),
        ("include : none.sub\nqueue\n", "the included file none.sub cannot be read: No such file or directory"),
        ("include command : ls\nqueue\n", "`include` of a program's output is not supported"),
        ("use feature : x\nqueue\n", "`use` is not supported"),
        ("error : no way\nqueue\n", "error of the submit file: no way"),
        ("queue\nqueue 2\n", "j.sub:2:1: this is a second `queue` (the first is in line 1), but a run has only one"),
        ("queue 0\n", "queue 0 creates no job"),
        ("queue x\n", "queue 'x' is invalid"),
        ("queue x from (\na\n", "the list of `queue` has no closing parenthesis"),
        ("queue x from none.txt\n", "cannot be read from none.txt"),
        ("queue x from seq 3 |\n", "runs a program, which is not supported"),
        ("queue x matching *.none\n", "no file matches"),
        ("a = $(b)\nb = $(a)\nqueue $(a)\n", "a macro refers to itself"),
        ("a = \x00\nqueue\n", "a submit file cannot contain the character '\\x00'"),
    ],
)
def test_errors(parse, text, message):
    assert message in "\n".join(messages(parse(text)))


def test_queue_items(parse, tmp_path):
    for name in ("b.dat", "a.dat"):
        (tmp_path / name).touch()
    (tmp_path / "d.dat").mkdir()
    (tmp_path / "items.txt").write_text("# c\nx, 1\n\ny 2 3\n")

    def rows(text):
        return parse(text).queue.rows

    assert rows("queue x in (a b, c)\n") == (("a",), ("b",), ("c",))
    assert rows("queue x,y from items.txt\n") == (("x", "1"), ("y", "2 3"))
    assert rows("queue x from (\n a b\n # c\n\n c\n)\n") == (("a b",), ("c",))
    assert rows("queue f matching files *.dat\n") == (("a.dat",), ("b.dat",))
    assert rows("queue f matching dirs *.dat\n") == (("d.dat/",),)
    assert rows("queue x in [1:] (a b c)\n") == (("b",), ("c",))
    assert rows("n = 2\nqueue $(n) x in (a)\n") == (("a",),)
    assert parse("n = 2\nqueue $(n) x in (a)\n").queue.count == 2


def test_template(parse):
    description = parse("a = $(x)-$(Process)-$(Cluster)-$ENV(USER)-$$(Site)\nqueue x in (p q)\n")
    table = JobTable(description, {"USER": "me"})
    template = table.to_template(description.commands["a"].value)
    assert table.to_workflow_text(template) == "{x}-{job}-{run}-me-$$(Site)"
    assert [text.partition("\x01")[0] for text in table.values_per_job(template)] == ["p-0-", "q-1-"]


FUNCTIONS = ("F", "Fn", "Fnx", "Fp", "Fd", "Fpn", "Fx", "Fdb", "Fq", "BASENAME", "DIRNAME")


@pytest.mark.parametrize(
    ("value", "expected"),  # the results of HTCondor 25.14
    [
        ("/p/q.tar.gz", '/p/q.tar.gz|q.tar|q.tar.gz|/p/|p/|/p/q.tar|.gz|p|"/p/q.tar.gz"|q.tar.gz|/p/'),
        ("two words", 'two words|two words|two words|||two words|||"two words"|two words|'),
        ("p/q/", 'p/q/|||p/q/|q/|p/q/||q|"p/q/"||p/q/'),
        ('"q"', 'q|q|q|||q|||"q"|q|'),
        ('"q" x', 'q" x|q" x|q" x|||q" x|||"q" x"|q" x|'),
        ("", '||||||||""||'),
    ],
)
def test_path_functions(parse, value, expected):
    table = JobTable(parse(f"p = {value}\nqueue\n"), {})
    assert table.value_for_job("|".join(f"${name}(p)" for name in FUNCTIONS), 0) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$SUBSTR(p,1)", "wo words"),
        ("$SUBSTR(p,0,2)", "tw"),
        ("$SUBSTR(p,-2)", "ds"),
        ("$SUBSTR(p,1,-1)", "wo word"),
        ("$SUBSTR(nothing,1)", ""),
        ("$F(nothing)", "nothing"),
        ("$BASENAME(a/b)", "b"),
        ("$CHOICE(1,a,p,c)", "two words"),
        ("$INT(n,%03d)", "007"),
        ("$STRING(n)", "7"),
        ("$(DOLLAR)n", "$n"),
        ("$(p:x) $(nothing:x:y) $(a-b) $( p )", "two words x:y $(a-b) $( p )"),
        ("$$(p) $$([ 1 + 1 ])", "$$(p) $$([ 1 + 1 ])"),
    ],
)
def test_macros(parse, text, expected):
    assert JobTable(parse("p = two words\nn = 7\nqueue\n"), {}).value_for_job(text, 0) == expected


def test_function_of_process_becomes_a_column(parse):
    description = parse("a = f$INT(Process,%03d)\nqueue 3\n")
    table = JobTable(description, {})
    assert table.to_workflow_text(table.to_template(description.commands["a"].value)) == "{value}"
    assert table.to_matrix() == {"matrix": {"value": ["f000", "f001", "f002"]}}


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ("queue", {}),
        ("queue 50", {"count": 50}),
        ("queue x in (a b)", {"matrix": {"x": ["a", "b"]}}),
        ("queue 2 x in (a b)", {"matrix": {"x": ["a", "b"]}, "count": 2}),
        ("queue job in (a)", {"matrix": {"job_": ["a"]}}),
        ("queue x in (a a)", {"matrix": {"include": [{"x": "a", "row": "0"}, {"x": "a", "row": "1"}]}}),
        ("queue x,y from (1 2)", {"matrix": {"include": [{"x": "1", "y": "2"}]}}),
    ],
)
def test_count_and_matrix(parse, queue, expected):
    assert JobTable(parse(queue + "\n"), {}).to_matrix() == expected


def test_step_and_row(parse):
    description = parse("a = $(x)$(Step)\nqueue 2 x in (p q)\n")
    table = JobTable(description, {})
    assert table.values_per_job(table.to_template("$(x)$(Step)$(Row)")) == ["p00", "p10", "q01", "q11"]
    assert len(table.to_matrix()["matrix"]["include"]) == 4
