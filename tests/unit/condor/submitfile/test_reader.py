"""Submit files: what each line means, and which line is wrong."""

from __future__ import annotations

import pytest

from packtrain.condor.submitfile.commands import KNOWN_COMMANDS
from packtrain.condor.submitfile.context import SubmitContext
from packtrain.condor.submitfile.description import parse_submit_description
from packtrain.condor.submitfile.job_table import JobTable


@pytest.fixture
def described(tmp_path):
    def make(text):
        return parse_submit_description(text, "j.sub", SubmitContext(tmp_path, {"USER": "me"}), KNOWN_COMMANDS)

    return make


def values(description):
    return {name: setting.value for name, setting in description.commands.items()}


def told(description):
    return [str(problem) for problem in description.problems]


def test_comments_continuations_and_blocks(described):
    found = described("# c\na = 1 \\\n   2\nb @=end\n  one\n two\n@end\n+Attr = 3\nMY.Other = 4\n-Attr\nqueue\n")
    assert values(found) | {"+attr": "3"} == {"a": "1 2", "b": "one\ntwo", "+other": "4", "+attr": "3"}
    assert found.settings["b"].line == 4


def test_an_attribute_can_be_taken_away(described):
    assert values(described("+A = 1\n-A = \nqueue\n")) == {}


def test_a_key_may_refer_to_its_own_former_value(described):
    assert values(described("x = a\nx = $(x) b\nqueue\n")) == {"x": "a b"}


def test_the_last_setting_counts_and_the_first_is_named(described):
    found = described("requirements = A\nother = 1\nother = 2\n\nrequirements = B\nqueue\n")
    assert values(found)["requirements"] == "B"
    assert told(found) == [
        "j.sub:5:1: warning: requirements is set again; HTCondor forgets what line 1 says; join both with &&"
    ]


def test_includes(described, tmp_path):
    (tmp_path / "more.sub").write_text("b = 2\nwrong line\n")
    found = described("a = 1\ninclude : more.sub\ninclude ifexist : none.sub\nqueue\n")
    assert values(found) == {"a": "1", "b": "2"}
    assert told(found) == ["j.sub:2:1: 'wrong line' is no line of a submit file; write KEY = VALUE"]


def test_a_file_that_includes_itself_is_told(described, tmp_path):
    (tmp_path / "loop.sub").write_text("include : loop.sub\n")
    assert "more than 8 deep" in told(described("include : loop.sub\nqueue\n"))[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = 1\n", "j.sub:2:1: there is no `queue` statement"),
        ("a b = 1\nqueue\n", "j.sub:1:1: 'a b = 1' is no line of a submit file"),
        ("qeue 5\nqueue\n", "did you mean 'queue'?"),
        ("if 1 == 1\nendif\nqueue\n", "j.sub:1:1: the condition '1 == 1' is not one that HTCondor understands"),
        ("if true\nqueue\n", "j.sub:1:1: this `if` has no `endif`"),
        ("endif\nqueue\n", "there is no `if` that this ends"),
        ("if true\nelse\nelse\nendif\nqueue\n", "j.sub:3:1: there is no `if` that this belongs to"),
        ("include : none.sub\nqueue\n", "the included file none.sub cannot be read: No such file or directory"),
        ("include command : ls\nqueue\n", "`include` of a program's output is not supported"),
        ("use feature : x\nqueue\n", "`use` is not supported"),
        ("error : no way\nqueue\n", "the file says: no way"),
        ("queue\nqueue 2\n", "j.sub:2:1: this is a second `queue` (the first is in line 1), and a run has one"),
        ("queue 0\n", "queue 0 makes no job"),
        ("queue x\n", "queue 'x' is not understood"),
        ("queue x from (\na\n", "the list of `queue` has no closing bracket"),
        ("queue x from none.txt\n", "cannot be read from none.txt"),
        ("queue x from seq 3 |\n", "runs a program, which packtrain does not do"),
        ("queue x matching *.none\n", "nothing matches"),
        ("a = $(b)\nb = $(a)\nqueue $(a)\n", "a macro refers to itself"),
        ("a = \x00\nqueue\n", "the character '\\x00' does not belong into a submit file"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(described, text, sentence):
    assert sentence in "\n".join(told(described(text)))


def test_queue_items(described, tmp_path):
    for name in ("b.dat", "a.dat"):
        (tmp_path / name).touch()
    (tmp_path / "d.dat").mkdir()
    (tmp_path / "items.txt").write_text("# c\nx, 1\n\ny 2 3\n")

    def rows(text):
        return described(text).queue.rows

    assert rows("queue x in (a b, c)\n") == (("a",), ("b",), ("c",))
    assert rows("queue x,y from items.txt\n") == (("x", "1"), ("y", "2 3"))
    assert rows("queue x from (\n a b\n # c\n\n c\n)\n") == (("a b",), ("c",))
    assert rows("queue f matching files *.dat\n") == (("a.dat",), ("b.dat",))
    assert rows("queue f matching dirs *.dat\n") == (("d.dat/",),)
    assert rows("queue x in [1:] (a b c)\n") == (("b",), ("c",))
    assert rows("n = 2\nqueue $(n) x in (a)\n") == (("a",),)
    assert described("n = 2\nqueue $(n) x in (a)\n").queue.count == 2


def test_what_differs_from_job_to_job(described):
    found = described("a = $(x)-$(Process)-$(Cluster)-$ENV(USER)-$$(Site)\nqueue x in (p q)\n")
    jobs = JobTable(found, {"USER": "me"})
    template = jobs.to_template(found.commands["a"].value)
    assert jobs.to_workflow_text(template) == "{x}-{job}-{run}-me-$$(Site)"
    assert [text.partition("\x01")[0] for text in jobs.values_per_job(template)] == ["p-0-", "q-1-"]


FUNCTIONS = ("F", "Fn", "Fnx", "Fp", "Fd", "Fpn", "Fx", "Fdb", "Fq", "BASENAME", "DIRNAME")


@pytest.mark.parametrize(
    ("value", "expected"),  # as HTCondor 25.14 has them
    [
        ("/p/q.tar.gz", '/p/q.tar.gz|q.tar|q.tar.gz|/p/|p/|/p/q.tar|.gz|p|"/p/q.tar.gz"|q.tar.gz|/p/'),
        ("two words", 'two words|two words|two words|||two words|||"two words"|two words|'),
        ("p/q/", 'p/q/|||p/q/|q/|p/q/||q|"p/q/"||p/q/'),
        ('"q"', 'q|q|q|||q|||"q"|q|'),
        ('"q" x', 'q" x|q" x|q" x|||q" x|||"q" x"|q" x|'),
        ("", '||||||||""||'),
    ],
)
def test_functions_of_paths(described, value, expected):
    jobs = JobTable(described(f"p = {value}\nqueue\n"), {})
    assert jobs.value_for_job("|".join(f"${name}(p)" for name in FUNCTIONS), 0) == expected


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
def test_macros(described, text, expected):
    assert JobTable(described("p = two words\nn = 7\nqueue\n"), {}).value_for_job(text, 0) == expected


def test_functions_of_the_number_become_a_column(described):
    found = described("a = f$INT(Process,%03d)\nqueue 3\n")
    jobs = JobTable(found, {})
    assert jobs.to_workflow_text(jobs.to_template(found.commands["a"].value)) == "{value}"
    assert jobs.to_matrix() == {"matrix": {"value": ["f000", "f001", "f002"]}}


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
def test_count_and_matrix(described, queue, expected):
    assert JobTable(described(queue + "\n"), {}).to_matrix() == expected


def test_steps_within_an_item(described):
    found = described("a = $(x)$(Step)\nqueue 2 x in (p q)\n")
    jobs = JobTable(found, {})
    assert jobs.values_per_job(jobs.to_template("$(x)$(Step)$(Row)")) == ["p00", "p10", "q01", "q11"]
    assert len(jobs.to_matrix()["matrix"]["include"]) == 4
