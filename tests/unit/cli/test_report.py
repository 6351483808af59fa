"""`packtrain report`: messages and exit codes for bad arguments, --csv and --dry-run."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.paths import TESTS_DIR

STUDY = TESTS_DIR / "data" / "study" / "ospool-imagenet-100-jobs.csv"


@pytest.fixture
def workspace(run_packtrain, tmp_path):
    Path("prose.txt").write_text("Dear diary,\n")
    Path("wrong.csv").write_text("job,outcome\n1.0,success\n1.1,splendid\n")
    Path("empty.log").write_text("")
    return tmp_path


@pytest.fixture
def report(workspace, run_packtrain):
    return partial(run_packtrain, "report")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 4, "there are no runs yet"),
        (("nowhere",), 4, "there is neither a run nor a file 'nowhere'"),
        (("no/such.log",), 4, "there is no file no/such.log"),
        (("prose.txt",), 2, "prose.txt is neither an HTCondor user log, nor Slurm accounting"),
        (("empty.log",), 2, "empty.log is empty"),
        (("--since", "2026-11-01"), 2, "`sacct` was not found"),
        (("wrong.csv",), 2, "wrong.csv, line 3, column outcome: `splendid` is not one of"),
        ((STUDY, "prose.txt"), 2, "is a job table, which cannot be combined with other files"),
        ((STUDY, "-o", "prose.txt/in"), 2, "the report cannot be written to prose.txt/in"),
        ((STUDY, "--compare", "*.nothing"), 4, "there is no file *.nothing"),
    ],
    ids=[
        "no run",
        "no name",
        "no file",
        "prose",
        "empty",
        "no sacct",
        "bad cell",
        "two kinds",
        "no folder",
        "no other",
    ],
)
def test_bad_arguments(report, arguments, code, message):
    exit_code, out, err = report(*arguments)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    exit_code, out, _ = report(*arguments, "--json")
    assert (exit_code, json.loads(out)["exit_code"]) == (code, code)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((STUDY, "--csv", "--json"), "--csv and --json exclude each other"),
        (("--user", "ada"), "--user and --until need --since"),
        ((STUDY, "--since", "now"), "--since reads Slurm's accounting with sacct; leave out"),
    ],
)
def test_contradicting_options(report, arguments, message):
    code, _, err = report(*arguments)
    assert code == 2
    assert message in err


def test_csv_with_compare_needs_output(report, workspace):
    trials = STUDY.with_name("ospool-imagenet-trials.csv")
    code, out, err = report(STUDY, "--csv", "--compare", trials)
    assert (code, out) == (2, "")
    assert "--csv prints the jobs of one report" in err
    code, out, _ = report(STUDY, "--csv", "--compare", trials, "-o", "both")
    assert (code, out.partition(",")[0]) == (0, "job")
    assert "Compared with ospool-imagenet-trials" in Path("both/index.html").read_text(encoding="utf-8")
    comparison = json.loads(Path("both/report.json").read_text(encoding="utf-8"))["comparison"]
    assert comparison == json.loads(report(STUDY, "--compare", trials, "--json")[1])["comparison"]
    assert comparison["statistics"]["success_rate"]["change"] == "worse"


def test_dry_run_writes_nothing(report, workspace):
    before = sorted(workspace.iterdir())
    code, out, _ = report(STUDY, "--dry-run")
    assert code == 0
    assert f"would write a report to {workspace / 'ospool-imagenet-100-jobs-report'}" in out
    assert sorted(workspace.iterdir()) == before


def test_report_folder_name_is_sanitized(report, workspace):
    table = workspace / "we [ek] of? jobs.csv"
    table.write_text("job,outcome\n1.0,success\n")
    code, out, _ = report(table, "--dry-run")
    assert code == 0
    assert f"would write a report to {workspace / 'we-ek-of-jobs-report'}" in out
