"""What staging and streaming would each cost, as `packtrain plan` tells it."""

import pytest

from packtrain.planner.plan_summary import summarize_plan
from packtrain.planner.preflight import InputStat, PreflightResult

GB = 10**9


def shown(planned, text, size=GB, **more):
    """The inputs as they are shown, each of whose files has this size."""
    made = planned(text, **more).plan
    sources = [source for job in made.jobs for source in job.inputs]
    keys = [item.locations for source in sources for item in source.files]
    keys += [(source.prefix,) for source in sources if source.prefix]
    return summarize_plan(made, PreflightResult({key: InputStat(key[0].url, size, 1) for key in keys})).inputs


def test_both_ways_of_an_archive(planned):
    (data,) = shown(planned, "limits: {disk: 9GB}\ninput: {http: {url: 'https://h/t.tar'}}\n")
    stage, stream = data.mode_costs
    assert (stage.mode, stage.is_selected, stage.startup_bytes, stage.bytes_per_epoch, stage.disk_bytes) == (
        "stage", True, GB, 0, GB,
    )  # fmt: skip
    assert (stream.mode, stream.is_selected, stream.startup_bytes, stream.bytes_per_epoch, stream.disk_bytes) == (
        "stream", False, 1 << 20, GB, 0,
    )  # fmt: skip
    assert stream.caches_reads


def test_the_one_that_is_chosen(planned):
    (data,) = shown(planned, "input: {http: {url: 'https://h/t.tar'}, mode: stream}\n")
    assert [(way.mode, way.is_selected, way.disk_bytes) for way in data.mode_costs] == [
        ("stage", False, GB),
        ("stream", True, 0),
    ]
    assert not data.mode_costs[1].caches_reads, "nobody said how much disk there is"


def test_what_is_not_known_is_not_told(planned):
    (data,) = shown(planned, "input: {http: {url: 'https://h/t.tar'}, mode: stream}\n", size=None)
    assert [(way.startup_bytes, way.bytes_per_epoch, way.disk_bytes) for way in data.mode_costs] == [
        (None, 0, None),
        (1 << 20, None, 0),
    ]


@pytest.mark.parametrize(
    "source",
    ["http: {url: 'https://h/t.tar.gz'}", "http: {url: 'https://h/model.pt'}", "osdf: {path: /x.tar}, unpack: never"],
)
def test_what_cannot_be_streamed_has_no_choice(planned, source):
    (data,) = shown(planned, f"input: {{{source}}}\n")
    assert data.mode_costs == ()


def test_many_shards_are_one_line(planned):
    (data,) = shown(planned, "input: {http: {url: 'https://h/{000..146}.tar'}, mode: stream}\n")
    assert (data.n_files, data.size, data.url) == (147, 147 * GB, "https://h/000.tar")
    assert [way.startup_bytes for way in data.mode_costs] == [147 * GB, 1 << 20]


def test_trouble_with_one_shard_is_told(planned):
    made = planned("input: {http: {url: 'https://h/{0..1}.tar'}, mode: stream}\n").plan
    good, bad = (item.locations for item in made.jobs[0].inputs[0].files)
    found = PreflightResult(
        {good: InputStat("g", 5, 1), bad: InputStat("b", error="it is gone", failure_kind="object_missing")}
    )
    (data,) = summarize_plan(made, found).inputs
    assert (data.error, data.reachable, data.size) == ("it is gone", False, None)


def test_a_file_that_several_jobs_share_is_one_line(planned):
    text = "matrix: {lr: [1, 2]}\ninput: {http: {files: ['https://h/a.bin', 'https://h/{lr}.bin']}}\n"
    assert [(one.url[-5:], one.n_jobs) for one in shown(planned, text)] == [("a.bin", 2), ("1.bin", 1), ("2.bin", 1)]
