"""`packtrain simulate`: what it prints, what it writes, and what it says of what cannot be done."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.pool_models import WEEK_TABLE


@pytest.fixture
def call(packtrain):
    return partial(packtrain, "simulate")


def test_a_table_for_people(call):
    code, out, err = call("--from", WEEK_TABLE, "--policy", "plain", "--seeds", 3)
    assert (code, err) == (0, "")
    assert "100 jobs in a pool as of ospool-imagenet-100-jobs: 125 slots" in out
    (success,) = [line for line in out.splitlines() if line.startswith("jobs that succeed, %")]
    assert "±" in success


def test_data_for_programs_and_the_same_again(call):
    arguments = ("--from", WEEK_TABLE, "--policy", "plain", "--seeds", 4, "--json")
    code, out, _ = call(*arguments)
    told = json.loads(out)
    assert code == 0 and told["jobs"] == 100 and told["slots"] == 125
    plain = told["policies"]["plain"]
    assert plain["seeds"] == 4
    assert plain["success"]["low"] <= plain["success"]["mean"] <= plain["success"]["high"]
    assert plain["waste_s"]["transfer_thrown_away"]["mean"] > 0
    assert call(*arguments)[1] == out


def test_what_if(call):
    arguments = ("--from", WEEK_TABLE, "--policy", "plain", "--seeds", 1, "--json", "--jobs", "2x", "--slots", "50")
    told = json.loads(call(*arguments, "--without", "PDX-Coeus-CE1", "--without-cache", "CHTC-Spark-CE1")[1])
    assert told["jobs"] == 200 and abs(told["slots"] - 50) <= 1
    assert set(told["sites"]) == {"CHTC-Spark-CE1", "GP-ARGO-ksu-backfill"}


def test_the_page(call, tmp_path):
    code, out, _ = call("--from", WEEK_TABLE, "--policy", "plain", "--seeds", 1, "-o", "pages")
    assert code == 0 and "report of one run, plain: pages/plain/" in out
    folder = tmp_path / "pages" / "plain"
    assert json.loads((folder / "report.json").read_text())["figures"]["jobs"] == 100
    (page,) = folder.glob("*.html")
    assert "plain" in page.read_text(encoding="utf-8")


def test_a_policy_of_ones_own(call):
    Path("patient.yaml").write_text("limits:\n  attempts: 9\nrecovery:\n  copies: 0\ncheckpoint: 10m\n")
    told = json.loads(call("--from", WEEK_TABLE, "--policy", "patient.yaml", "--seeds", 1, "--jobs", "10", "--json")[1])
    assert list(told["policies"]) == ["patient"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "Missing option '--from'"),
        (("--from", "nowhere"), 4, "there is neither a run nor a file 'nowhere'"),
        (("--from", "prose.txt"), 2, "prose.txt is neither a user log of HTCondor nor a table of jobs"),
        (("--from", "waiting.csv"), 2, "waiting: no job of it ever ran to an end; there is nothing to calibrate from"),
        (
            ("--from", WEEK_TABLE, "--policy", "wild"),
            4,
            "there is no policy 'wild'; known are plain, adopted, packtrain",
        ),
        (("--from", WEEK_TABLE, "--policy", "bad.yaml"), 2, "bad.yaml:2"),
        (("--from", WEEK_TABLE, "--policy", "plain", "--policy", "plain"), 2, "two policies have the same name"),
        (("--from", WEEK_TABLE, "--jobs", "many"), 2, "'many' is no number of jobs"),
        (("--from", WEEK_TABLE, "--seeds", "0"), 2, "0 is not in the range"),
        (("--from", WEEK_TABLE, "--mix", "Ada=1"), 2, "there is no site 'Ada'; there are CHTC-Spark-CE1"),
        (
            ("--from", WEEK_TABLE, "--policy", "plain", "--seeds", "1", "-o", "prose.txt/in"),
            2,
            "the report cannot be written",
        ),
    ],
)
def test_what_cannot_be_played_is_said_in_a_sentence(call, arguments, code, sentence):
    Path("prose.txt").write_text("Dear diary,\n")
    Path("waiting.csv").write_text("job,outcome\n1.0,running\n")
    Path("bad.yaml").write_text("limits:\n  attempts: often\n")
    ended, out, err = call(*arguments)
    assert (ended, out) == (code, "")
    assert sentence in err and "Traceback" not in err
