"""Output checks of real trainings: a training without a valid model fails, and the message names file and reason."""

from __future__ import annotations

import sys

import pytest

from packtrain.events import FAILURE_KINDS
from tests.support.cli_runs import Workspace
from tests.support.paths import TESTS_DIR

pytestmark = pytest.mark.slow

MODELS = TESTS_DIR / "golden" / "models"
TRAIN = """
import json, os, shutil, sys
case, out = sys.argv[1], os.environ["PACKTRAIN_OUTPUT"]
model, loss = os.path.join(out, "model.pt"), 0.5
if case == "nanloss":
    shutil.copy("MODELS/good.pt", model)
    loss = float("nan")
elif case != "absent":
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e30 if case == "nan" else 0.1)
    x, y = torch.randn(64, 4), torch.randn(64, 2)
    for step in range(20):
        error = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad(); error.backward(); optimizer.step()
    torch.save({} if case == "empty" else net.state_dict(), model)
json.dump({"test": {"loss": loss}}, open(os.path.join(out, "metrics.json"), "w"))
"""
WORKFLOW = """
name: checked
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 3}}
matrix: {{case: [good, nan, nanloss, empty, absent]}}
inputs:
  code: {{file: {{path: train.py}}, unpack: never}}
expect:
  - {{path: model.pt, torch: true}}
  - {{path: metrics.json, json: {{test.loss: {{min: 0, max: 10}}}}}}
steps:
  - name: train
    run: {{command: "{python} $PACKTRAIN_INPUTS/code/train.py {{case}}"}}
"""
EXPECTED_FAILURES = {
    "nan": (
        "output_invalid",
        "model.pt did not pass its check `torch`: the tensor weight has 8 values that are not finite",
    ),
    "nanloss": (
        "output_invalid",
        "metrics.json did not pass its check `json`: test.loss is nan, which is not finite",
    ),
    "empty": ("output_invalid", "model.pt did not pass its check `torch`: it contains no tensors"),
    "absent": ("output_missing", "'model.pt' is missing: 0 files match, it should exist; the output folder contains"),
}


@pytest.mark.timeout(300)
def test_invalid_outputs_fail_the_job(tmp_path):
    workspace = Workspace(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN.replace("MODELS", str(MODELS)))
    workspace.write_file(WORKFLOW.format(python=sys.executable))
    run = workspace.start("run", "workflow.yaml")
    out, err = run.communicate(timeout=240)
    assert run.returncode == FAILURE_KINDS["output_invalid"].exit_code, out + err
    by_case = {job["point"]["case"]: job for job in workspace.run_json("ps", workspace.run_folder().name)["jobs"]}
    assert by_case.pop("good")["status"] == "succeeded"
    for case, job in by_case.items():
        kind, message = EXPECTED_FAILURES[case]
        assert (job["status"], job["failure"]["kind"]) == ("failed", kind)
        assert message in job["failure"]["detail"]
        assert len(job["executions"]) == 1, "a retry would fail in the same way"
        assert not (workspace.run_folder() / "jobs" / job["job"] / "output" / "model.pt").exists()
    explanation = workspace.run("why")
    assert all(message.partition("`")[0] in explanation for _, message in EXPECTED_FAILURES.values())
