"""Submit files in the style of the published ones: the workflow that each means, and that it means the same plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.condor.submitfile import load_submit_file
from packtrain.plan import RunFolder, encode
from packtrain.planner.make_plan import make_plan
from packtrain.spec.load import load_workflow_text
from tests.support.paths import TESTS_DIR

FILES = TESTS_DIR / "golden" / "submit-files"
NAMES = ("cifar10", "imagenet", "sweep")


@pytest.mark.parametrize("name", NAMES)
def test_the_workflow_that_is_meant(name):
    made = load_submit_file(FILES / f"{name}.sub").to_workflow_text(f"{name}.sub")
    assert made == (FILES / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_workflow_is_the_same_workflow_and_the_same_plan(name):
    adopted = load_submit_file(FILES / f"{name}.sub")
    printed = load_workflow_text(adopted.to_workflow_text(f"{name}.sub"), str(FILES / f"{name}.yaml"))
    assert printed.diagnostics == ()
    assert printed.workflow.model_dump() == adopted.load_result.workflow.model_dump()
    assert plan_of(printed.workflow) == plan_of(adopted.load_result.workflow)


def plan_of(workflow):
    planned = make_plan(workflow, run="r", engine="local", workflow_dir=FILES, run_folder=RunFolder(Path("/runs/r")))
    assert not planned.has_errors, planned.diagnostics
    return encode(planned.plan)


def test_what_is_said_about_them():
    told = {
        name: [p.message for p in load_submit_file(FILES / f"{name}.sub").load_result.diagnostics] for name in NAMES
    }
    assert any("the exit code is that of `rm -rf data" in message for message in told["cifar10"])
    assert any("requirements is set again; HTCondor forgets what line 20 says" in m for m in told["imagenet"])
    assert any("50 jobs would write to ., where the last one wins" in message for message in told["imagenet"])
    assert told["sweep"] == []
