"""`packtrain report` of real runs, of real HTCondor logs, of the published table."""

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
def desk(tmp_path):
    return Workspace(tmp_path)


def adds_up(document) -> bool:
    figures = document["figures"]
    return sum(figures["shares"].values()) == pytest.approx(figures["wallclock_s"], abs=1e-4)


def test_a_run_ends_with_its_report(desk):
    desk.write_file(WORKFLOW)
    summary = desk.run_json("run", "workflow.yaml", code=None)
    page = Path(summary["report"])
    assert page.parent == desk.run_folder() / "report"
    assert "<svg" in page.read_text(encoding="utf-8")
    written = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert adds_up(written)
    assert (written["kind"], written["name"]) == ("run", desk.run_folder().name)
    assert [job["outcome"] for job in written["jobs"]] == ["succeeded", "failed"]
    assert [job["attempts"] for job in written["jobs"]] == [len(job["attempts"]) for job in summary["jobs"]]
    assert [job["checked"] for job in written["jobs"]] == [True, None]

    found = desk.run_json("report")
    assert (found["figures"], found["page"]) == (written["figures"], None), "of the newest run; nothing is written"
    out = desk.run("report", desk.run_folder(), "--compare", STUDY)
    assert f"report: {page}" in out
    assert "ospool-imagenet-100-jobs  ratio" in out
    assert "1 of 2 jobs did not succeed" in out
    assert list((page.parent / "pictures").glob("*.png"))


def test_the_end_of_a_run_tells_what_was_of_use_and_where_the_page_is(desk):
    desk.write_file(WORKFLOW.replace("[0, 3]", "[0]"))
    out = desk.run("run", "workflow.yaml")
    told = re.sub(r"[\d.]+", "#", out)
    assert "where the time went (# s):" in told
    assert "\nsuccess rate #%, useful share #% of # s of slots\n" in told
    assert f"\nreport: {desk.run_folder() / 'report' / 'index.html'}\n" in out


def test_a_report_that_cannot_be_written_spoils_no_run(desk):
    desk.write_file(WORKFLOW.replace("[0, 3]", "[0]").replace("exit", f"cat {desk.folder}/gate; exit"))
    os.mkfifo(desk.folder / "gate")
    run = desk.start("run", "workflow.yaml")
    (desk.run_folder() / "report").write_text("in the way")
    (desk.folder / "gate").write_text("go")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "the report could not be written: the report cannot be written to" in err
    assert "report:" not in out


def test_real_logs(desk):
    out = desk.run("report", DATA / "condor-logs", "-o", "there")
    assert "where" in out
    assert "Nobody checked the outputs of" in out
    assert f"report: {Path('there') / 'index.html'}" in out
    document = json.loads((desk.folder / "there" / "report.json").read_text(encoding="utf-8"))
    assert adds_up(document)
    one = desk.run_json("report", DATA / "condor-logs" / "01-success-gpu-transfer.log")
    assert (one["figures"]["jobs"], one["figures"]["success_rate"], one["figures"]["unchecked"]) == (1, 1.0, 1)
    assert sorted(path.name for path in desk.folder.iterdir()) == ["there"], "--json alone writes no files"


def test_the_published_table(desk):
    folder = desk.folder / "ospool-imagenet-100-jobs-report"
    out = desk.run("report", STUDY)
    assert f"report: {folder / 'index.html'}" in out
    assert "43% of the wallclock (329 h) went to transfers that were thrown away" in out
    rows = list(csv.DictReader(io.StringIO(desk.run("report", STUDY, "--csv"))))
    assert (len(rows), rows[0]["job"], rows[0]["useful_compute_s"]) == (100, "794569.000", "11182")
    against = desk.run_json("report", STUDY, "--compare", DATA / "study" / "ospool-imagenet-trials.csv")["against"]
    assert against["figures"]["success_rate"] == {
        "a": 0.79,
        "b": 0.9,
        "ratio": pytest.approx(0.878, abs=1e-3),
        "verdict": "worse",
    }
