"""How inputs reach the worker, and what is said before anything is submitted."""

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
from tests.support.condor_plans import container_environment, local_input, make_job, make_plan, output_at, remote_input


class AccessPoint:
    """Stands for the configuration of one."""

    def __init__(self, limit: str = "") -> None:
        self._limit = limit

    def param(self, name: str) -> str:
        return self._limit if name == "MAX_TRANSFER_INPUT_MB" else ""


def sentences(made, limit: str = "", settings: RunSettings | None = None) -> list[str]:
    return [problem.message for problem in find_problems(made, settings or RunSettings(), AccessPoint(limit))]


def streamed(source: Input, folder: Path) -> Input:
    index = RemoteFile("t.tar.packtrain-index", (Location((folder / "0123.packtrain-index").as_uri()),), 9)
    return replace(source, mode="stream", index=index)


def test_an_index_is_sent_along_and_found(tmp_path):
    source = streamed(remote_input("https://h/t.tar"), tmp_path / "indexes")
    made = make_job(inputs=(source,))
    sent = input_transfer.collect_condor_inputs(make_plan(made))
    assert sent == [] and input_transfer.transfer_method(source) == "agent"
    assert input_transfer.transfer_input_files(made, sent, tmp_path) == (
        str(tmp_path / "indexes/0123.packtrain-index"),
    )
    (there,) = resolve_local_inputs(input_transfer.job_for_worker(made, sent), Path("/scratch")).inputs
    assert there.index.locations == (Location("file:///scratch/0123.packtrain-index"),)
    assert there.files == source.files


@pytest.mark.parametrize(("way", "refused"), [("auto", True), ("native", True), ("agent", False)])
def test_a_file_of_the_access_point_cannot_be_streamed(tmp_path, way, refused):
    found = sentences(make_plan(make_job(inputs=(streamed(local_input("/data/t.tar", way), tmp_path),))))
    assert [sentence for sentence in found if "cannot stream a file of this machine" in sentence] == found
    assert bool(found) == refused


@pytest.mark.parametrize(
    ("source", "way"),
    [
        (local_input("/data/x.txt"), "native"),
        (local_input("/data/x.txt", "agent"), "agent"),
        (remote_input("https://h/x.tar"), "agent"),
        (remote_input("osdf:///data/x.tar", "plugin"), "plugin"),
    ],
)
def test_the_way_of_an_input(source, way):
    assert input_transfer.transfer_method(source) == way


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (remote_input(transfer="native"), "native delivery is for files of this machine"),
        (local_input("/x", "plugin"), "plugin delivery is for addresses of single files"),
        (remote_input(transfer="plugin", token="t"), "HTCondor's plugins do not see the token"),
    ],
)
def test_what_does_not_fit_together_is_said(source, says):
    (sentence,) = sentences(make_plan(make_job(inputs=(source,))))
    assert says in sentence


@pytest.mark.parametrize(
    ("urls", "name"),
    [
        (["https://h/a/x.bin", "https://h/b/x.bin"], "x.bin"),
        (["https://h/x.bin?v=1", "osdf:///data/x.bin"], "x.bin"),
        (["https://h/plan.json"], "plan.json"),
    ],
)
def test_plugins_must_not_overwrite_each_others_files_nor_ours(urls, name):
    (sentence,) = sentences(make_plan(make_job(inputs=tuple(remote_input(url, "plugin") for url in urls))))
    assert f"under the name {name!r}" in sentence


def test_every_job_of_a_matrix_is_looked_at():
    good, bad = remote_input("https://h/x.bin", "plugin"), remote_input("https://h/plan.json", "plugin")
    (sentence,) = sentences(
        make_plan(make_job(0, inputs=(good,)), make_job(1, inputs=(bad,)), make_job(2, inputs=(bad, good)))
    )
    assert "under the name 'plan.json'" in sentence
    (sentence,) = sentences(
        make_plan(make_job(0, inputs=(good,)), make_job(1, inputs=(remote_input(transfer="native"),)))
    )
    assert "native delivery is for files of this machine" in sentence


def test_one_address_may_be_two_inputs():
    assert sentences(make_plan(make_job(inputs=(remote_input("https://h/x.bin", "plugin"),) * 2))) == []


def test_a_native_input_over_the_limit_is_refused_with_sizes_and_remedy(tmp_path):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(6 * 10**9)
    (problem,) = find_problems(make_plan(make_job(inputs=(local_input(path),))), RunSettings(), AccessPoint("5000"))
    assert problem.is_error
    assert "send 6.0 GB to each job, but sends at most 5.2 GB (MAX_TRANSFER_INPUT_MB = 5000)" in problem.message
    assert "transfer: agent" in problem.hint
    assert sentences(make_plan(make_job(inputs=(local_input(path, "agent"),))), "5000") == []


def test_the_limit_of_the_job_itself_counts_more(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(3 << 20))
    made = make_plan(make_job(inputs=(local_input(path),)))
    assert sentences(made, "5000") == []
    assert sentences(made, "1", RunSettings(submit_lines=(("Max_Transfer_Input_MB", "10"),))) == []
    assert "sends at most" in sentences(made, "5000", RunSettings(submit_lines=(("max_transfer_input_mb", "1"),)))[0]


@pytest.mark.parametrize("limit", ["", "-1", "nonsense"])
def test_without_a_limit_a_large_one_is_only_a_warning(tmp_path, limit):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(2 * 10**9)
    (problem,) = find_problems(make_plan(make_job(inputs=(local_input(path),))), RunSettings(), AccessPoint(limit))
    assert not problem.is_error
    assert "has to send 2.0 GB to each of 1 jobs" in problem.message


def test_an_image_that_is_sent_counts_too(tmp_path):
    path = tmp_path / "image.sif"
    path.write_bytes(bytes(3 << 20))
    assert "sends at most" in sentences(make_plan(make_job(environment=container_environment(str(path)))), "1")[0]


def test_an_image_that_stays_here_does_not_count(tmp_path):
    (tmp_path / "image.sif").write_bytes(b"x" * 2_000_000)
    made = make_plan(make_job(environment=container_environment(str(tmp_path / "image.sif"))))
    assert sentences(made, "1", RunSettings(submit_lines=(("Transfer_Container", " False"),))) == []
    assert sentences(made, "1") != []


def test_folders_that_no_job_would_get_are_told(tmp_path):
    (tmp_path / "data/empty").mkdir(parents=True)
    (tmp_path / "data/full").mkdir()
    (tmp_path / "data/full/a").touch()
    (tmp_path / "data/linked").symlink_to(tmp_path)
    made = make_plan(make_job(inputs=(Input("", "input", prefix=Location(f"file://{tmp_path}/data")),)))
    (said,) = sentences(made)
    assert said.endswith("lead to: linked, empty")


def test_an_address_with_a_comma_is_one_address():
    source = remote_input("https://a.example/x,y.tar?v=1,2", transfer="plugin")
    (parcel,) = input_transfer.collect_condor_inputs(make_plan(make_job(inputs=(source,))))
    assert input_transfer.transfer_input_files(make_job(inputs=(source,)), [parcel], Path("/n")) == (
        "https://a.example/x%2Cy.tar?v=1%2C2",
    )
    (arriving,) = input_transfer.job_for_worker(make_job(inputs=(source,)), [parcel]).inputs
    assert arriving.files[0].locations[0].url.endswith("x%2Cy.tar")


def test_lines_that_are_packtrains_own_are_refused():
    settings = make_run_settings(make_plan(htcondor=(EnvVar("executable", "x"),)), HtcondorConfig(), None)
    assert sentences(make_plan(), settings=settings) == [
        "packtrain sets executable itself; the workflow's own keys say what it should be"
    ]


def test_what_rides_along_is_found_again_on_the_worker(tmp_path):
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
    made = make_plan(
        make_job(inputs=inputs, output=output_at("file:///home/ada/out")), make_job(1, output=output_at("s3://b/x"))
    )
    write_run_files(made, folder, RunSettings())
    native = folder.htcondor / "native"
    assert (native / "in-0" / "data.txt").read_text() == "hello"
    assert (native / "in-1" / "a" / "1.txt").read_text() == "one"
    sent = input_transfer.transfer_input_files(made.jobs[0], input_transfer.collect_condor_inputs(made), native)
    assert sent == (str(native / "in-0"), str(native / "in-1"), "osdf:///data/z%20z.tar")
    (arrived,) = read_plan(folder.job_plan("0")).jobs
    assert arrived.output is None, "only this machine has that folder"
    there = resolve_local_inputs(arrived, Path("/scratch/dir_1"))
    assert [_address(source) for source in there.inputs] == [
        "file:///scratch/dir_1/in-0/data.txt",
        "file:///scratch/dir_1/in-1",
        "https://h/y.tar",
        "file:///scratch/dir_1/z%2520z.tar",
    ]
    (other,) = read_plan(folder.job_plan("1")).jobs
    assert other == made.jobs[1], "what needs no delivery stays as it is"
    assert resolve_local_inputs(other, Path("/scratch")) is other


def _address(source: Input) -> str:
    return source.prefix.url if source.prefix else source.files[0].locations[0].url


def test_the_disk_is_what_is_needed_and_a_little_more():
    def asked(made, known):
        return make_run_settings(made, HtcondorConfig(), known).disk_mb

    assert asked(make_plan(), 10 << 30) == 11 * 1024
    assert asked(make_plan(make_job(limits=Limits(disk_bytes=5 << 30))), 10 << 30) == 6 * 1024
    assert asked(make_plan(), None) == 10 * 1024
