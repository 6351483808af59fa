"""`packtrain simulate`: its table, JSON, report pages, changes to the model, and bad arguments."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.pool_models import WEEK_TABLE


@pytest.fixture
def simulate(run_packtrain):
    return partial(run_packtrain, "simulate")


def test_table(simulate):
    code, out, err = simulate("--from", WEEK_TABLE, "--scenario", "plain", "--seeds", 3)
    assert (code, err) == (0, "")
    assert "100 jobs on a model of ospool-imagenet-100-jobs: 125 slots" in out
    (success,) = [line for line in out.splitlines() if line.startswith("succeeded jobs, %")]
    assert "±" in success


def test_json_is_reproducible(simulate):
    arguments = ("--from", WEEK_TABLE, "--scenario", "plain", "--seeds", 4, "--json")
    code, out, _ = simulate(*arguments)
    result = json.loads(out)
    assert code == 0 and result["jobs"] == 100 and result["slots"] == 125
    plain = result["scenarios"]["plain"]
    assert plain["n_runs"] == 4
    success = plain["success_percent"]
    assert success["ci_low"] <= success["mean"] <= success["ci_high"]
    assert plain["wasted_slot_s"]["wasted_transfer"]["mean"] > 0
    assert simulate(*arguments)[1] == out


def test_changed_model(simulate):
    arguments = ("--from", WEEK_TABLE, "--scenario", "plain", "--seeds", 1, "--json", "--jobs", "2x", "--slots", "50")
    result = json.loads(simulate(*arguments, "--without-site", "PDX-Coeus-CE1", "--without-cache", "CHTC-Spark-CE1")[1])
    assert result["jobs"] == 200 and abs(result["slots"] - 50) <= 1
    assert set(result["sites"]) == {"CHTC-Spark-CE1", "GP-ARGO-ksu-backfill"}


def test_report_page(simulate, tmp_path):
    code, out, _ = simulate("--from", WEEK_TABLE, "--scenario", "plain", "--seeds", 1, "-o", "pages")
    assert code == 0 and "report of one run of plain: pages/plain/" in out
    folder = tmp_path / "pages" / "plain"
    assert json.loads((folder / "report.json").read_text())["statistics"]["jobs"] == 100
    (page,) = folder.glob("*.html")
    assert "plain" in page.read_text(encoding="utf-8")


def test_scenario_file(simulate):
    Path("patient.yaml").write_text(
        "limits:\n  maxAttempts: 9\nrecovery:\n  stragglerBudget: 0\ncheckpointInterval: 10m\n"
    )
    result = json.loads(
        simulate("--from", WEEK_TABLE, "--scenario", "patient.yaml", "--seeds", 1, "--jobs", "10", "--json")[1]
    )
    assert list(result["scenarios"]) == ["patient"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Missing option '--from'"),
        (("--from", "nowhere"), 4, "there is neither a run nor a file 'nowhere'"),
        (("--from", "prose.txt"), 2, "prose.txt is neither an HTCondor user log, nor Slurm accounting"),
        (
            ("--from", "waiting.csv"),
            2,
            "waiting: none of its jobs ran to the end, so there is nothing to calibrate from",
        ),
        (
            ("--from", WEEK_TABLE, "--scenario", "wild"),
            4,
            "there is no scenario 'wild'",
        ),
        (("--from", WEEK_TABLE, "--scenario", "bad.yaml"), 2, "bad.yaml:2"),
        (("--from", WEEK_TABLE, "--scenario", "plain", "--scenario", "plain"), 2, "two scenarios have the same name"),
        (("--from", WEEK_TABLE, "--jobs", "many"), 2, "'many' is not a number of jobs"),
        (("--from", WEEK_TABLE, "--seeds", "0"), 2, "0 is not in the range"),
        (("--from", WEEK_TABLE, "--mix", "Ada=1"), 2, "there is no site 'Ada'; there are CHTC-Spark-CE1"),
        (
            ("--from", WEEK_TABLE, "--scenario", "plain", "--seeds", "1", "-o", "prose.txt/in"),
            2,
            "the report cannot be written",
        ),
    ],
)
def test_bad_arguments(simulate, arguments, code, message):
    Path("prose.txt").write_text("Dear diary,\n")
    Path("waiting.csv").write_text("job,outcome\n1.0,running\n")
    Path("bad.yaml").write_text("limits:\n  maxAttempts: often\n")
    exit_code, out, err = simulate(*arguments)
    assert (exit_code, out) == (code, "")
    assert message in err and "Traceback" not in err
