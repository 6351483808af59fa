"""`packtrain report` on real runs, real HTCondor logs and the published table."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest

from tests.support.cli_runs import Workspace
from tests.support.paths import TESTS_DIR

pytestmark = pytest.mark.slow

DATA = TESTS_DIR / "data"
STUDY = DATA / "study" / "ospool-imagenet-100-jobs.csv"

WORKFLOW = """
name: mixed
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
output: {file: {path: "results/{job}"}}
expect: [{path: model.txt}]
matrix: {ends: [0, 3]}
steps:
  - name: train
    run:
      command: |
        echo done > $PACKTRAIN_OUTPUT/model.txt
        echo '{"step": 1, "loss": 0.5}' >> $PACKTRAIN_METRICS
        exit $PACKTRAIN_POINT_ENDS
"""


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def adds_up(document) -> bool:
    stats = document["statistics"]
    return sum(stats["time_use_s"].values()) == pytest.approx(stats["wallclock_s"], abs=1e-4)


def test_report_at_the_end_of_a_run(workspace):
    workspace.write_file(WORKFLOW)
    summary = workspace.run_json("run", "workflow.yaml", exit_code=None)
    page = Path(summary["report"])
    assert page.parent == workspace.run_folder() / "report"
    assert "<svg" in page.read_text(encoding="utf-8")
    written = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert adds_up(written)
    assert (written["kind"], written["name"]) == ("run", workspace.run_folder().name)
    assert [job["outcome"] for job in written["jobs"]] == ["succeeded", "failed"]
    assert [job["executions"] for job in written["jobs"]] == [len(job["executions"]) for job in summary["jobs"]]
    assert [job["outputs_checked"] for job in written["jobs"]] == [True, None]

    latest = workspace.run_json("report")
    assert (latest["statistics"], latest["page"]) == (written["statistics"], None), "--json writes no files"
    out = workspace.run("report", workspace.run_folder(), "--compare", STUDY)
    assert f"report: {page}" in out
    assert "ospool-imagenet-100-jobs  ratio" in out
    assert "1 of 2 jobs did not succeed" in out
    assert list((page.parent / "charts").glob("*.png"))


def test_summary_at_the_end_of_a_run(workspace):
    workspace.write_file(WORKFLOW.replace("[0, 3]", "[0]"))
    out = workspace.run("run", "workflow.yaml")
    text = re.sub(r"[\d.]+", "#", out)
    assert "where the time went (# s):" in text
    assert "\nsuccess rate #%, useful share #% of # s of slots\n" in text
    assert f"\nreport: {workspace.run_folder() / 'report' / 'index.html'}\n" in out


def test_unwritable_report_does_not_fail_the_run(workspace):
    workspace.write_file(WORKFLOW.replace("[0, 3]", "[0]").replace("exit", f"cat {workspace.folder}/gate; exit"))
    os.mkfifo(workspace.folder / "gate")
    run = workspace.start("run", "workflow.yaml")
    (workspace.run_folder() / "report").write_text("in the way")
    (workspace.folder / "gate").write_text("go")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "could not write the report: the report cannot be written to" in err
    assert "report:" not in out


def test_real_logs(workspace):
    out = workspace.run("report", DATA / "condor-logs", "-o", "there")
    assert "of slot time" in out
    assert "were not checked" in out
    assert f"report: {Path('there') / 'index.html'}" in out
    document = json.loads((workspace.folder / "there" / "report.json").read_text(encoding="utf-8"))
    assert adds_up(document)
    document = workspace.run_json("report", DATA / "condor-logs" / "01-success-gpu-transfer.log")
    stats = document["statistics"]
    assert (stats["jobs"], stats["success_rate"], stats["unchecked_jobs"]) == (1, 1.0, 1)
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["there"], "--json writes no files"


def test_published_table(workspace):
    folder = workspace.folder / "ospool-imagenet-100-jobs-report"
    out = workspace.run("report", STUDY)
    assert f"report: {folder / 'index.html'}" in out
    assert "43% of the slot time (329 h) was wasted on transfers" in out
    rows = list(csv.DictReader(io.StringIO(workspace.run("report", STUDY, "--csv"))))
    assert (len(rows), rows[0]["job"], rows[0]["useful_compute_s"]) == (100, "794569.000", "11182")
    trials = DATA / "study" / "ospool-imagenet-trials.csv"
    comparison = workspace.run_json("report", STUDY, "--compare", trials)["comparison"]
    assert comparison["statistics"]["success_rate"] == {
        "current": 0.79,
        "baseline": 0.9,
        "ratio": pytest.approx(0.878, abs=1e-3),
        "change": "worse",
    }
