"""Tests of the classification of failures by the last line, with real programs."""

from __future__ import annotations

import shlex
import sys

import pytest

from packtrain.agent.processes.error_patterns import ERROR_PATTERNS, classify_error
from packtrain.events import FAILURE_KINDS
from tests.support.step_harness import StepHarness, make_step, run_expecting_failure


@pytest.fixture
def harness(tmp_path):
    harness = StepHarness(tmp_path)
    yield harness
    harness.close()


def make_python_step(program):
    return make_step(f"{sys.executable} -c {shlex.quote(program)}", name="train")


@pytest.mark.parametrize(
    ("program", "kind", "blame"),
    [
        ("import missing_scipy", "module_missing", "user"),
        ("import os; raise OSError(38, os.strerror(38), 'lock')", "filesystem_unusable", "site"),
        ("open('ILSVRC2012_img_train.tar')", "file_missing", "user"),
        ("import os; raise OSError(28, os.strerror(28))", "disk_full", "site"),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')", "gpu_out_of_memory", "user"),
        ("raise RuntimeError('CUDA error: no kernel image is available for execution')", "gpu_unusable", "site"),
        ("import os; raise OSError(101, os.strerror(101))", "network_unreachable", "site"),
        ("import socket; socket.getaddrinfo('nohost.invalid', 80)", "host_unknown", "site"),
        ("raise ValueError('the loss is not a number')", "step_failed", "user"),
    ],
)
def test_python_errors(harness, program, kind, blame):
    error = run_expecting_failure(harness, make_python_step(program))
    assert (error.kind, FAILURE_KINDS[error.kind].blame) == (kind, blame)
    assert error.detail.startswith('step "train" ended with exit code 1; last line on stderr: ')
    assert error.status == 1


def test_missing_program(harness):
    error = run_expecting_failure(harness, make_step("missing-unzip data.zip", name="unpack"))
    assert (error.kind, error.status) == ("program_missing", 127)
    assert "missing-unzip" in error.detail


def test_other_messages_are_no_evidence():
    assert classify_error(1, "could not do it: no module named scipy") == "step_failed"
    assert classify_error(127, "I give up") == "step_failed"
    assert classify_error(1, "") == "step_failed"


def test_stream_error_names_its_kind():
    message = "packtrain.stream.samples.StreamError: samples cannot be read (network_unreachable): https://h/t.tar: …"
    assert classify_error(1, message) == "network_unreachable"
    assert classify_error(1, f"train.py: {message}") == "network_unreachable"
    assert classify_error(1, "samples cannot be read (my_own_kind): …") == "step_failed"


def test_patterns_have_known_kinds():
    assert {kind for _, kind in ERROR_PATTERNS} <= set(FAILURE_KINDS)
