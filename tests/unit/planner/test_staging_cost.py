"""The costs of staging and streaming that `packtrain plan` shows."""

import pytest

from packtrain.planner.plan_summary import summarize_plan
from packtrain.planner.preflight import InputStat, PreflightResult

GB = 10**9


def summarize_inputs(plan_workflow, text, size=GB, **options):
    """Return the input summaries of a plan whose files all have the given size."""
    plan = plan_workflow(text, **options).plan
    inputs = [source for job in plan.jobs for source in job.inputs]
    keys = [remote_file.locations for source in inputs for remote_file in source.files]
    keys += [(source.prefix,) for source in inputs if source.prefix]
    return summarize_plan(plan, PreflightResult({key: InputStat(key[0].url, size, 1) for key in keys})).inputs


def test_costs_of_both_modes(plan_workflow):
    (summary,) = summarize_inputs(plan_workflow, "limits: {disk: 9GB}\ninput: {http: {url: 'https://h/t.tar'}}\n")
    stage, stream = summary.mode_costs
    assert (stage.mode, stage.is_selected, stage.startup_bytes, stage.bytes_per_epoch, stage.disk_bytes) == (
        "stage", True, GB, 0, GB,
    )  # fmt: skip
    assert (stream.mode, stream.is_selected, stream.startup_bytes, stream.bytes_per_epoch, stream.disk_bytes) == (
        "stream", False, 1 << 20, GB, 0,
    )  # fmt: skip
    assert stream.caches_reads


def test_selected_mode(plan_workflow):
    (summary,) = summarize_inputs(plan_workflow, "input: {http: {url: 'https://h/t.tar'}, mode: stream}\n")
    assert [(cost.mode, cost.is_selected, cost.disk_bytes) for cost in summary.mode_costs] == [
        ("stage", False, GB),
        ("stream", True, 0),
    ]
    assert not summary.mode_costs[1].caches_reads, "the workflow sets no disk limit"


def test_unknown_size(plan_workflow):
    (summary,) = summarize_inputs(plan_workflow, "input: {http: {url: 'https://h/t.tar'}, mode: stream}\n", size=None)
    assert [(cost.startup_bytes, cost.bytes_per_epoch, cost.disk_bytes) for cost in summary.mode_costs] == [
        (None, 0, None),
        (1 << 20, None, 0),
    ]


@pytest.mark.parametrize(
    "source",
    ["http: {url: 'https://h/t.tar.gz'}", "http: {url: 'https://h/model.pt'}", "osdf: {path: /x.tar}, unpack: never"],
)
def test_not_streamable(plan_workflow, source):
    (summary,) = summarize_inputs(plan_workflow, f"input: {{{source}}}\n")
    assert summary.mode_costs == ()


def test_shards_are_one_entry(plan_workflow):
    (summary,) = summarize_inputs(plan_workflow, "input: {http: {url: 'https://h/{000..146}.tar'}, mode: stream}\n")
    assert (summary.n_files, summary.size, summary.url) == (147, 147 * GB, "https://h/000.tar")
    assert [cost.startup_bytes for cost in summary.mode_costs] == [147 * GB, 1 << 20]


def test_missing_shard(plan_workflow):
    plan = plan_workflow("input: {http: {url: 'https://h/{0..1}.tar'}, mode: stream}\n").plan
    present, missing = (remote_file.locations for remote_file in plan.jobs[0].inputs[0].files)
    preflight = PreflightResult(
        {
            present: InputStat("g", 5, 1),
            missing: InputStat("b", error="the file was deleted", failure_kind="object_missing"),
        }
    )
    (summary,) = summarize_plan(plan, preflight).inputs
    assert (summary.error, summary.reachable, summary.size) == ("the file was deleted", False, None)


def test_shared_file_is_one_entry(plan_workflow):
    text = "matrix: {lr: [1, 2]}\ninput: {http: {files: ['https://h/a.bin', 'https://h/{lr}.bin']}}\n"
    assert [(summary.url[-5:], summary.n_jobs) for summary in summarize_inputs(plan_workflow, text)] == [
        ("a.bin", 2),
        ("1.bin", 1),
        ("2.bin", 1),
    ]
