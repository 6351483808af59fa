"""How inputs reach the worker, and what is said before anything is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.engines.htcondor import input_transfer
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import make_ready, problems, run_settings
from packtrain.plan import EnvVar, Input, Item, Limits, Ref, RunFolder, read_plan
from packtrain.plan.local_inputs import at_home
from packtrain.spec.user_config import HtcondorSettings
from tests.support.condor_plans import at, contained, job, local, plan, remote


class AccessPoint:
    """Stands for the configuration of one."""

    def __init__(self, limit: str = "") -> None:
        self._limit = limit

    def param(self, name: str) -> str:
        return self._limit if name == "MAX_TRANSFER_INPUT_MB" else ""


def sentences(made, limit: str = "", settings: RunSettings | None = None) -> list[str]:
    return [problem.message for problem in problems(made, settings or RunSettings(), AccessPoint(limit))]


def streamed(source: Input, folder: Path) -> Input:
    index = Item("t.tar.packtrain-index", (Ref((folder / "0123.packtrain-index").as_uri()),), 9)
    return replace(source, mode="stream", index=index)


def test_an_index_is_sent_along_and_found(tmp_path):
    source = streamed(remote("https://h/t.tar"), tmp_path / "indexes")
    made = job(inputs=(source,))
    sent = input_transfer.parcels(plan(made))
    assert sent == [] and input_transfer.way_of(source) == "agent"
    assert input_transfer.transfer_list(made, sent, tmp_path) == (str(tmp_path / "indexes/0123.packtrain-index"),)
    (there,) = at_home(input_transfer.for_worker(made, sent), Path("/scratch")).inputs
    assert there.index.sources == (Ref("file:///scratch/0123.packtrain-index"),)
    assert there.items == source.items


@pytest.mark.parametrize(("way", "refused"), [("auto", True), ("native", True), ("agent", False)])
def test_a_file_of_the_access_point_cannot_be_streamed(tmp_path, way, refused):
    found = sentences(plan(job(inputs=(streamed(local("/data/t.tar", way), tmp_path),))))
    assert [sentence for sentence in found if "cannot stream a file of this machine" in sentence] == found
    assert bool(found) == refused


@pytest.mark.parametrize(
    ("source", "way"),
    [
        (local("/data/x.txt"), "native"),
        (local("/data/x.txt", "agent"), "agent"),
        (remote("https://h/x.tar"), "agent"),
        (remote("osdf:///data/x.tar", "plugin"), "plugin"),
    ],
)
def test_the_way_of_an_input(source, way):
    assert input_transfer.way_of(source) == way


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (remote(delivery="native"), "native delivery is for files of this machine"),
        (local("/x", "plugin"), "plugin delivery is for addresses of single files"),
        (remote(delivery="plugin", token="t"), "HTCondor's plugins do not see the token"),
    ],
)
def test_what_does_not_fit_together_is_said(source, says):
    (sentence,) = sentences(plan(job(inputs=(source,))))
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
    (sentence,) = sentences(plan(job(inputs=tuple(remote(url, "plugin") for url in urls))))
    assert f"under the name {name!r}" in sentence


def test_every_job_of_a_matrix_is_looked_at():
    good, bad = remote("https://h/x.bin", "plugin"), remote("https://h/plan.json", "plugin")
    (sentence,) = sentences(plan(job(0, inputs=(good,)), job(1, inputs=(bad,)), job(2, inputs=(bad, good))))
    assert "under the name 'plan.json'" in sentence
    (sentence,) = sentences(plan(job(0, inputs=(good,)), job(1, inputs=(remote(delivery="native"),))))
    assert "native delivery is for files of this machine" in sentence


def test_one_address_may_be_two_inputs():
    assert sentences(plan(job(inputs=(remote("https://h/x.bin", "plugin"),) * 2))) == []


def test_a_native_input_over_the_limit_is_refused_with_sizes_and_remedy(tmp_path):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(6 * 10**9)
    (problem,) = problems(plan(job(inputs=(local(path),))), RunSettings(), AccessPoint("5000"))
    assert problem.is_error
    assert "send 6.0 GB to each job, but sends at most 5.2 GB (MAX_TRANSFER_INPUT_MB = 5000)" in problem.message
    assert "delivery: agent" in problem.hint
    assert sentences(plan(job(inputs=(local(path, "agent"),))), "5000") == []


def test_the_limit_of_the_job_itself_counts_more(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(3 << 20))
    made = plan(job(inputs=(local(path),)))
    assert sentences(made, "5000") == []
    assert sentences(made, "1", RunSettings(lines=(("Max_Transfer_Input_MB", "10"),))) == []
    assert "sends at most" in sentences(made, "5000", RunSettings(lines=(("max_transfer_input_mb", "1"),)))[0]


@pytest.mark.parametrize("limit", ["", "-1", "nonsense"])
def test_without_a_limit_a_large_one_is_only_a_warning(tmp_path, limit):
    path = tmp_path / "big.bin"
    with open(path, "wb") as file:
        file.truncate(2 * 10**9)
    (problem,) = problems(plan(job(inputs=(local(path),))), RunSettings(), AccessPoint(limit))
    assert not problem.is_error
    assert "has to send 2.0 GB to each of 1 jobs" in problem.message


def test_an_image_that_is_sent_counts_too(tmp_path):
    path = tmp_path / "image.sif"
    path.write_bytes(bytes(3 << 20))
    assert "sends at most" in sentences(plan(job(environment=contained(str(path)))), "1")[0]


def test_an_image_that_stays_here_does_not_count(tmp_path):
    (tmp_path / "image.sif").write_bytes(b"x" * 2_000_000)
    made = plan(job(environment=contained(str(tmp_path / "image.sif"))))
    assert sentences(made, "1", RunSettings(lines=(("Transfer_Container", " False"),))) == []
    assert sentences(made, "1") != []


def test_folders_that_no_job_would_get_are_told(tmp_path):
    (tmp_path / "data/empty").mkdir(parents=True)
    (tmp_path / "data/full").mkdir()
    (tmp_path / "data/full/a").touch()
    (tmp_path / "data/linked").symlink_to(tmp_path)
    made = plan(job(inputs=(Input("", "input", prefix=Ref(f"file://{tmp_path}/data")),)))
    (said,) = sentences(made)
    assert said.endswith("lead to: linked, empty")


def test_an_address_with_a_comma_is_one_address():
    source = remote("https://a.example/x,y.tar?v=1,2", delivery="plugin")
    (parcel,) = input_transfer.parcels(plan(job(inputs=(source,))))
    assert input_transfer.transfer_list(job(inputs=(source,)), [parcel], Path("/n")) == (
        "https://a.example/x%2Cy.tar?v=1%2C2",
    )
    (arriving,) = input_transfer.for_worker(job(inputs=(source,)), [parcel]).inputs
    assert arriving.items[0].sources[0].url.endswith("x%2Cy.tar")


def test_lines_that_are_packtrains_own_are_refused():
    settings = run_settings(plan(htcondor=(EnvVar("executable", "x"),)), HtcondorSettings(), None)
    assert sentences(plan(), settings=settings) == [
        "packtrain sets executable itself; the workflow's own keys say what it should be"
    ]


def test_what_rides_along_is_found_again_on_the_worker(tmp_path):
    data, folder = tmp_path / "data.txt", RunFolder(tmp_path / "run")
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "1.txt").write_text("one")
    data.write_text("hello")
    inputs = (
        local(data),
        Input("set", "inputs/set", prefix=Ref((tmp_path / "set").as_uri())),
        Input("far", "inputs/far", remote("https://h/y.tar").items),
        Input("plug", "inputs/plug", remote("osdf:///data/z%20z.tar").items, delivery="plugin"),
    )
    made = plan(job(inputs=inputs, output=at("file:///home/ada/out")), job(1, output=at("s3://b/x")))
    make_ready(made, folder, RunSettings())
    native = folder.htcondor / "native"
    assert (native / "in-0" / "data.txt").read_text() == "hello"
    assert (native / "in-1" / "a" / "1.txt").read_text() == "one"
    sent = input_transfer.transfer_list(made.jobs[0], input_transfer.parcels(made), native)
    assert sent == (str(native / "in-0"), str(native / "in-1"), "osdf:///data/z%20z.tar")
    (arrived,) = read_plan(folder.job_plan("0")).jobs
    assert arrived.output is None, "only this machine has that folder"
    there = at_home(arrived, Path("/scratch/dir_1"))
    assert [_address(source) for source in there.inputs] == [
        "file:///scratch/dir_1/in-0/data.txt",
        "file:///scratch/dir_1/in-1",
        "https://h/y.tar",
        "file:///scratch/dir_1/z%2520z.tar",
    ]
    (other,) = read_plan(folder.job_plan("1")).jobs
    assert other == made.jobs[1], "what needs no delivery stays as it is"
    assert at_home(other, Path("/scratch")) is other


def _address(source: Input) -> str:
    return source.prefix.url if source.prefix else source.items[0].sources[0].url


def test_the_disk_is_what_is_needed_and_a_little_more():
    def asked(made, known):
        return run_settings(made, HtcondorSettings(), known).disk_mb

    assert asked(plan(), 10 << 30) == 11 * 1024
    assert asked(plan(job(limits=Limits(disk_bytes=5 << 30))), 10 << 30) == 6 * 1024
    assert asked(plan(), None) == 10 * 1024
