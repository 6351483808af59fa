"""Any script gives diagnostics or a valid workflow, never an exception; reading what was rendered changes nothing."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.slurm.batchfile.convert import convert_text
from packtrain.slurm.batchfile.directives import read_directives, render_directives
from packtrain.slurm.batchfile.option_table import OPTIONS, SHORT_OPTIONS
from packtrain.slurm.batchfile.parsed_batch import BatchContext
from packtrain.spec.diagnostics import DiagnosticReport, SourceMap
from packtrain.spec.load import load_workflow_text

CONTEXT = BatchContext(Path("/nonexistent"), Path("/nonexistent"))
NAMES = st.sampled_from([*(f"--{name}" for name in OPTIONS), *(f"-{letter}" for letter in SHORT_OPTIONS), "--x11", "-"])
SAMPLES = """
1 2-4 8G gpu:a100:2 1-10:2%4 1-12:00 B:USR1@60 logs/%x-%5j_%a.out ALL,A=1 NONE ../a {task} {job} ${A} true 0 é
"""
VALUES = st.sampled_from(SAMPLES.split()) | st.text(alphabet=" ab'\"\\#=%@:,-\t$\x01", max_size=8)
ARGUMENTS = st.builds("".join, st.tuples(NAMES, st.sampled_from(["=", " ", "", " # "]), VALUES))
LINES = st.builds("{}{}".format, st.sampled_from(["#SBATCH ", "#SBATCH", "##SBATCH ", "#PBS ", "# ", ""]), ARGUMENTS)
SCRIPTS = st.lists(LINES, max_size=12).map(lambda lines: "\n".join(["#!/bin/bash", *lines, "set -e", "train", ""]))


def read(text):
    report = DiagnosticReport(SourceMap("job.sbatch"))
    return [(directive.name, directive.value) for directive in read_directives(text, report)], report


def check(text):
    converted = convert_text(text, "job.sbatch", CONTEXT)
    result = converted.load_result
    assert (result.workflow is None) == any(problem.is_error for problem in result.diagnostics)
    assert all(problem.line >= 1 and problem.message for problem in result.diagnostics)
    if result.workflow is not None:
        printed = load_workflow_text(converted.to_workflow_text("job.sbatch"))
        assert printed.workflow is not None, printed.diagnostics
        assert printed.workflow.model_dump() == result.workflow.model_dump()


@given(st.text(max_size=200))
def test_any_text(text):
    check(text)


@given(SCRIPTS)
@settings(max_examples=400)
def test_random_options(text):
    check(text)


@given(SCRIPTS)
@settings(max_examples=300)
def test_rendered_options_are_stable(text):
    options, _ = read(text)
    again, report = read(f"#!/bin/bash\n{render_directives(options)}")
    assert again == [(name, value) for name, value in options]
    assert not report.has_errors
