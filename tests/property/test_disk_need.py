"""The disk need of a job: the worker never asks for more than the planner estimated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.agent.stages.probe import required_disk_bytes
from packtrain.plan import Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.planner.plan_summary import estimate_disk_bytes
from packtrain.planner.preflight import PreflightResult
from packtrain.transfer.archive.disk_need import staged_disk_bytes
from packtrain.transfer.archive.formats import FORMATS

SUFFIXES = ["", ".csv", ".pt", *(suffix for one in FORMATS for suffix in (*one.suffixes, *one.tar_suffixes))]


@st.composite
def remote_files(draw):
    name = draw(st.sampled_from("abc")) + draw(st.sampled_from(SUFFIXES))
    schemes = draw(st.lists(st.sampled_from(["https", "file", "osdf"]), min_size=1, max_size=2))
    locations = tuple(Location(f"{scheme}://host/{name}") for scheme in schemes)
    return RemoteFile(name, locations, draw(st.integers(0, 10**15)))


inputs = st.builds(
    Input,
    st.just(""),
    st.just("input"),
    st.lists(remote_files(), max_size=4).map(tuple),
    mode=st.sampled_from(["stage", "stream"]),
    unpack=st.sampled_from(["auto", "never"]),
)


def make_job(job_inputs, limit_bytes=None):
    return Job("0", (), Resources(), Limits(disk_bytes=limit_bytes), (), inputs=tuple(job_inputs))


@given(st.lists(inputs, max_size=4), st.none() | st.integers(1, 10**15))
def test_probe_needs_at_most_the_estimate_or_the_limit(job_inputs, limit_bytes):
    job = make_job(job_inputs, limit_bytes)
    estimate_bytes = estimate_disk_bytes(job, PreflightResult())
    assert estimate_bytes is not None
    assert required_disk_bytes(job, {}) <= max(estimate_bytes, limit_bytes or 0)


@given(inputs, st.booleans())
def test_need_is_at_least_the_size(job_input, can_stream):
    for file in job_input.files:
        needs = [
            staged_disk_bytes(job_input, file, file.size, typical=typical, can_stream=can_stream)
            for typical in (False, True)
        ]
        assert file.size <= needs[0] <= needs[1]
