"""How inputs reach the worker, and the problems that are reported before anything is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.engines.htcondor import input_transfer
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import find_problems, make_run_settings, write_run_files
from packtrain.plan import EnvVar, Input, Limits, Location, RemoteFile, RunFolder, read_plan
from packtrain.plan.local_inputs import resolve_local_inputs
from packtrain.spec.user_config import HtcondorConfig
from tests.support.condor_plans import (
    container_environment,
    local_input,
    make_job,
    make_plan,
    output_at,
    pixi_environment,
    remote_input,
)


class FakeClient:
    """Stands in for CondorClient: an access point with an input limit in MB."""

    def __init__(self, limit: str = "") -> None:
        self._limit = limit

    def get_param(self, name: str) -> str:
        return self._limit if name == "MAX_TRANSFER_INPUT_MB" else ""


def messages(plan, limit: str = "", settings: RunSettings | None = None) -> list[str]:
    return [problem.message for problem in find_problems(plan, settings or RunSettings(), FakeClient(limit))]


def as_stream(source: Input, folder: Path) -> Input:
    index = RemoteFile("t.tar.packtrain-index", (Location((folder / "0123.packtrain-index").as_uri()),), 9)
    return replace(source, mode="stream", index=index)


def test_stream_index_is_sent(tmp_path):
    source = as_stream(remote_input("https://h/t.tar"), tmp_path / "indexes")
    job = make_job(inputs=(source,))
    condor_inputs = input_transfer.collect_condor_inputs(make_plan(job))
    assert condor_inputs == [] and input_transfer.transfer_method(source) == "agent"
    sent = input_transfer.transfer_input_files(job, condor_inputs, tmp_path)
    assert sent == (str(tmp_path / "indexes/0123.packtrain-index"),)
    (resolved,) = resolve_local_inputs(input_transfer.job_for_worker(job, condor_inputs), Path("/scratch")).inputs
    assert resolved.index.locations == (Location("file:///scratch/0123.packtrain-index"),)
    assert resolved.files == source.files


def test_pixi_environment_is_sent(tmp_path):
    folder = RunFolder(tmp_path).pixi_environment("gpu")
    job = make_job(environment=pixi_environment(folder))
    assert input_transfer.transfer_input_files(job, [], tmp_path) == (str(folder),)
    sent = resolve_local_inputs(input_transfer.job_for_worker(job, []), Path("/scratch"))
    assert sent.environment.pixi == replace(job.environment.pixi, folder=Location("file:///scratch/pixi-gpu"))


@pytest.mark.parametrize(("method", "is_rejected"), [("auto", True), ("condor", True), ("agent", False)])
def test_local_file_cannot_be_streamed(tmp_path, method, is_rejected):
    found = messages(make_plan(make_job(inputs=(as_stream(local_input("/data/t.tar", method), tmp_path),))))
    assert all("cannot stream a file of this machine" in message for message in found)
    assert bool(found) == is_rejected


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (local_input("/data/x.txt"), "condor"),
        (local_input("/data/x.txt", "agent"), "agent"),
        (remote_input("https://h/x.tar"), "agent"),
        (remote_input("osdf:///data/x.tar", "plugin"), "plugin"),
    ],
)
def test_transfer_method(source, method):
    assert input_transfer.transfer_method(source) == method


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (remote_input(transfer="condor"), "`transfer: condor` is for files of this machine"),
        (remote_input(transfer="plugin", token="t"), "HTCondor's plugins do not get the token"),
    ],
)
def test_invalid_transfer_method(source, text):
    (message,) = messages(make_plan(make_job(inputs=(source,))))
    assert text in message


@pytest.mark.parametrize(
    ("urls", "name"),
    [
        (["https://h/a/x.bin", "https://h/b/x.bin"], "x.bin"),
        (["https://h/x.bin?v=1", "osdf:///data/x.bin"], "x.bin"),
        (["https://h/plan.json"], "plan.json"),
    ],
)
def test_plugin_name_conflicts(urls, name):
    (message,) = messages(make_plan(make_job(inputs=tuple(remote_input(url, "plugin") for url in urls))))
    assert f"two different files the name {name!r}" in message


def test_all_jobs_are_checked():
    good, bad = remote_input("https://h/x.bin", "plugin"), remote_input("https://h/plan.json", "plugin")
    (message,) = messages(
        make_plan(make_job(0, inputs=(good,)), make_job(1, inputs=(bad,)), make_job(2, inputs=(bad, good)))
    )
    assert "two different files the name 'plan.json'" in message
    (message,) = messages(
        make_plan(make_job(0, inputs=(good,)), make_job(1, inputs=(remote_input(transfer="condor"),)))
    )
    assert "`transfer: condor` is for files of this machine" in message


def test_same_url_is_no_conflict():
    assert messages(make_plan(make_job(inputs=(remote_input("https://h/x.bin", "plugin"),) * 2))) == []


def test_input_over_the_limit(tmp_path):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(6 * 10**9)
    (problem,) = find_problems(make_plan(make_job(inputs=(local_input(path),))), RunSettings(), FakeClient("5000"))
    assert problem.is_error
    assert "send 6 GB to each job, but sends at most 5.2 GB (MAX_TRANSFER_INPUT_MB = 5000)" in problem.message
    assert "transfer: agent" in problem.hint
    assert messages(make_plan(make_job(inputs=(local_input(path, "agent"),))), "5000") == []


def test_limit_of_the_job_wins(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(3 << 20))
    plan = make_plan(make_job(inputs=(local_input(path),)))
    assert messages(plan, "5000") == []
    assert messages(plan, "1", RunSettings(submit_lines=(("Max_Transfer_Input_MB", "10"),))) == []
    assert "sends at most" in messages(plan, "5000", RunSettings(submit_lines=(("max_transfer_input_mb", "1"),)))[0]


@pytest.mark.parametrize("limit", ["", "-1", "nonsense"])
def test_large_input_without_limit(tmp_path, limit):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(2 * 10**9)
    (problem,) = find_problems(make_plan(make_job(inputs=(local_input(path),))), RunSettings(), FakeClient(limit))
    assert not problem.is_error
    assert "has to send 2 GB to each of 1 jobs" in problem.message


def test_sent_image_counts(tmp_path):
    path = tmp_path / "image.sif"
    path.write_bytes(bytes(3 << 20))
    assert "sends at most" in messages(make_plan(make_job(environment=container_environment(str(path)))), "1")[0]


def test_unsent_image_does_not_count(tmp_path):
    (tmp_path / "image.sif").write_bytes(b"x" * 2_000_000)
    plan = make_plan(make_job(environment=container_environment(str(tmp_path / "image.sif"))))
    assert messages(plan, "1", RunSettings(submit_lines=(("Transfer_Container", " False"),))) == []
    assert messages(plan, "1") != []


def test_skipped_folders(tmp_path):
    (tmp_path / "data/empty").mkdir(parents=True)
    (tmp_path / "data/full").mkdir()
    (tmp_path / "data/full/a").touch()
    (tmp_path / "data/linked").symlink_to(tmp_path)
    plan = make_plan(make_job(inputs=(Input("", "input", prefix=Location(f"file://{tmp_path}/data")),)))
    (message,) = messages(plan)
    assert message.endswith("links to folders: linked, empty")


def test_url_with_comma():
    source = remote_input("https://a.example/x,y.tar?v=1,2", transfer="plugin")
    (condor_input,) = input_transfer.collect_condor_inputs(make_plan(make_job(inputs=(source,))))
    assert input_transfer.transfer_input_files(make_job(inputs=(source,)), [condor_input], Path("/n")) == (
        "https://a.example/x%2Cy.tar?v=1%2C2",
    )
    (resolved,) = input_transfer.job_for_worker(make_job(inputs=(source,)), [condor_input]).inputs
    assert resolved.files[0].locations[0].url.endswith("x%2Cy.tar")


def test_reserved_submit_lines():
    settings = make_run_settings(make_plan(htcondor=(EnvVar("executable", "x"),)), HtcondorConfig(), None)
    assert messages(make_plan(), settings=settings) == [
        "packtrain sets executable itself; use the keys of the workflow instead"
    ]


def test_inputs_on_the_worker(tmp_path):
    data, folder = tmp_path / "data.txt", RunFolder(tmp_path / "run")
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "1.txt").write_text("one")
    data.write_text("hello")
    inputs = (
        local_input(data),
        Input("set", "inputs/set", prefix=Location((tmp_path / "set").as_uri())),
        Input("far", "inputs/far", remote_input("https://h/y.tar").files),
        Input("plug", "inputs/plug", remote_input("osdf:///data/z%20z.tar").files, transfer="plugin"),
    )
    plan = make_plan(
        make_job(inputs=inputs, output=output_at("file:///home/ada/out")), make_job(1, output=output_at("s3://b/x"))
    )
    write_run_files(plan, folder, RunSettings())
    inputs_dir = folder.htcondor / "inputs"
    assert (inputs_dir / "input-0" / "data.txt").read_text() == "hello"
    assert (inputs_dir / "input-1" / "a" / "1.txt").read_text() == "one"
    sent = input_transfer.transfer_input_files(plan.jobs[0], input_transfer.collect_condor_inputs(plan), inputs_dir)
    assert sent == (str(inputs_dir / "input-0"), str(inputs_dir / "input-1"), "osdf:///data/z%20z.tar")
    (sent_job,) = read_plan(folder.job_plan("0")).jobs
    assert sent_job.output is None, "only the access point has that folder"
    resolved = resolve_local_inputs(sent_job, Path("/scratch/dir_1"))
    assert [_url(source) for source in resolved.inputs] == [
        "file:///scratch/dir_1/input-0/data.txt",
        "file:///scratch/dir_1/input-1",
        "https://h/y.tar",
        "file:///scratch/dir_1/z%2520z.tar",
    ]
    (other_job,) = read_plan(folder.job_plan("1")).jobs
    assert other_job == plan.jobs[1], "a job without local inputs is not changed"
    assert resolve_local_inputs(other_job, Path("/scratch")) is other_job


def _url(source: Input) -> str:
    return source.prefix.url if source.prefix else source.files[0].locations[0].url


def test_disk_request():
    def disk_mb(plan, disk_bytes):
        return make_run_settings(plan, HtcondorConfig(), disk_bytes).disk_mb

    assert disk_mb(make_plan(), 10 << 30) == 11 * 1024
    assert disk_mb(make_plan(make_job(limits=Limits(disk_bytes=5 << 30))), 10 << 30) == 6 * 1024
    assert disk_mb(make_plan(), None) == 10 * 1024
