"""Typical batch scripts, converted to workflows."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.plan import RunFolder, encode
from packtrain.planner.make_plan import make_plan
from packtrain.slurm.batchfile.convert import is_batch_file, load_batch_file
from packtrain.spec.load import load_workflow_text
from tests.support.paths import TESTS_DIR

FILES = TESTS_DIR / "golden" / "batch-files"
NAMES = ("single_gpu.sbatch", "sweep.slurm", "torchrun.sh", "lesson.sbatch", "everything.job")
SUBMIT_DIR = Path("/home/student/project")


def load(name):
    return load_batch_file(FILES / name, submit_dir=SUBMIT_DIR)


@pytest.mark.parametrize("name", NAMES)
def test_converted_workflow(name):
    assert is_batch_file(FILES / name)
    text = load(name).to_workflow_text(name)
    assert text == (FILES / name).with_suffix(".yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_same_workflow_and_plan(name):
    converted = load(name)
    printed = load_workflow_text(converted.to_workflow_text(name), str((FILES / name).with_suffix(".yaml")))
    assert printed.diagnostics == ()
    assert printed.workflow.model_dump() == converted.load_result.workflow.model_dump()
    assert encoded_plan(printed.workflow) == encoded_plan(converted.load_result.workflow)


def encoded_plan(workflow):
    result = make_plan(workflow, run="r", engine="slurm", workflow_dir=FILES, run_folder=RunFolder(Path("/runs/r")))
    assert not result.has_errors, result.diagnostics
    return encode(result.plan)


def test_refused_options():
    result = load("refused.sbatch").load_result
    assert result.workflow is None
    problems = [f"{problem.line}: {problem.message}" for problem in result.diagnostics]
    expected = (FILES / "refused.txt").read_text(encoding="utf-8").splitlines()
    assert problems == expected


def test_not_on_htcondor():
    workflow = load("sweep.slurm").load_result.workflow
    result = make_plan(workflow, run="r", engine="htcondor", workflow_dir=FILES, run_folder=RunFolder(Path("/r")))
    assert any("jobs on HTCondor do not get variables of your shell" in str(problem) for problem in result.diagnostics)
