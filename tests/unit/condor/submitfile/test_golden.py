"""Submit files like the published ones, converted to workflows and plans."""

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
def test_converted_workflow(name):
    text = load_submit_file(FILES / f"{name}.sub").to_workflow_text(f"{name}.sub")
    assert text == (FILES / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_same_workflow_and_plan(name):
    converted = load_submit_file(FILES / f"{name}.sub")
    printed = load_workflow_text(converted.to_workflow_text(f"{name}.sub"), str(FILES / f"{name}.yaml"))
    assert printed.diagnostics == ()
    assert printed.workflow.model_dump() == converted.load_result.workflow.model_dump()
    assert encoded_plan(printed.workflow) == encoded_plan(converted.load_result.workflow)


def encoded_plan(workflow):
    result = make_plan(workflow, run="r", engine="local", workflow_dir=FILES, run_folder=RunFolder(Path("/runs/r")))
    assert not result.has_errors, result.diagnostics
    return encode(result.plan)


def test_diagnostics():
    messages = {
        name: [p.message for p in load_submit_file(FILES / f"{name}.sub").load_result.diagnostics] for name in NAMES
    }
    assert any("the exit code is that of `rm -rf data" in message for message in messages["cifar10"])
    assert any("requirements is set again; HTCondor ignores line 20" in message for message in messages["imagenet"])
    assert any("50 jobs would overwrite each other's outputs in ." in message for message in messages["imagenet"])
    assert messages["sweep"] == []
