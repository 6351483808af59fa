"""What `packtrain report` says of what it cannot report on: one sentence, and an exit code. And what it would do."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.paths import TESTS_DIR

STUDY = TESTS_DIR / "data" / "study" / "ospool-imagenet-100-jobs.csv"


@pytest.fixture
def desk(packtrain, tmp_path):
    Path("prose.txt").write_text("Dear diary,\n")
    Path("wrong.csv").write_text("job,outcome\n1.0,success\n1.1,splendid\n")
    Path("empty.log").write_text("")
    return tmp_path


@pytest.fixture
def call(desk, packtrain):
    return partial(packtrain, "report")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 4, "there are no runs yet"),
        (("nowhere",), 4, "there is neither a run nor a file 'nowhere'"),
        (("no/such.log",), 4, "there is no file no/such.log"),
        (("prose.txt",), 2, "prose.txt is neither a user log of HTCondor nor a table of jobs"),
        (("empty.log",), 2, "empty.log is empty"),
        (("wrong.csv",), 2, "wrong.csv, line 3, column outcome: `splendid` is none of"),
        ((STUDY, "prose.txt"), 2, "cannot be read together with other files"),
        ((STUDY, "-o", "prose.txt/in"), 2, "the report cannot be written to prose.txt/in"),
        ((STUDY, "--compare", "*.nothing"), 4, "there is no file *.nothing"),
    ],
    ids=["no run", "no name", "no file", "prose", "empty", "bad cell", "two kinds", "no folder", "no other"],
)
def test_what_cannot_be_reported_on_is_said_in_a_sentence(call, arguments, code, sentence):
    ended, out, err = call(*arguments)
    assert (ended, out) == (code, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    ended, out, _ = call(*arguments, "--json")
    assert (ended, json.loads(out)["exit_code"]) == (code, code)


def test_two_forms_cannot_be_printed_at_once(call):
    code, _, err = call(STUDY, "--csv", "--json")
    assert code == 2
    assert "cannot be printed at once" in err


def test_a_table_of_jobs_does_not_drop_what_it_is_compared_with(call, desk):
    trials = STUDY.with_name("ospool-imagenet-trials.csv")
    code, out, err = call(STUDY, "--csv", "--compare", trials)
    assert (code, out) == (2, "")
    assert "--csv prints the jobs of one report" in err
    code, out, _ = call(STUDY, "--csv", "--compare", trials, "-o", "both")
    assert (code, out.partition(",")[0]) == (0, "job")
    assert "Against ospool-imagenet-trials" in Path("both/index.html").read_text(encoding="utf-8")
    against = json.loads(Path("both/report.json").read_text(encoding="utf-8"))["against"]
    assert against == json.loads(call(STUDY, "--compare", trials, "--json")[1])["against"]
    assert against["figures"]["success_rate"]["verdict"] == "worse"


def test_a_dry_run_writes_nothing(call, desk):
    before = sorted(desk.iterdir())
    code, out, _ = call(STUDY, "--dry-run")
    assert code == 0
    assert f"would write a report to {desk / 'ospool-imagenet-100-jobs-report'}" in out
    assert sorted(desk.iterdir()) == before


def test_a_name_that_is_no_good_for_a_folder(call, desk):
    table = desk / "we [ek] of? jobs.csv"
    table.write_text("job,outcome\n1.0,success\n")
    code, out, _ = call(table, "--dry-run")
    assert code == 0
    assert f"would write a report to {desk / 'we-ek-of-jobs-report'}" in out
