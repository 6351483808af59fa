"""Inputs with `mode: stream`: what their addresses mean, what is refused, and how an index becomes part of the plan."""

import io
import tarfile

import pytest

from packtrain import plan
from packtrain.indexing import get_or_build_index
from packtrain.plan.stream_config import StreamConfig
from packtrain.planner import plan_summary, stream_planner
from packtrain.spec.load import load_workflow_text
from packtrain.stream.job_config import open_job_stream
from packtrain.stream.samples import StreamingSamples
from packtrain.transfer.backends.file import FileBackend
from testbed.http_server import HttpServer

S3 = "{region: r, bucketUrl: 's3://b', path: '%s', endpointUrl: 'https://s3.example/'}"
AROUND = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 0}\nsteps: [{run: {command: 'true'}}]\n"


def texts(problems, errors=True):
    return [str(problem) for problem in problems if problem.is_error == errors]


def addresses(source):
    return source.prefix.url if source.prefix else [[ref.url for ref in item.locations] for item in source.files]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("osdf: {path: /x/train.tar}", [["osdf:///x/train.tar"]]),
        ("osdf: {path: /x/train/}", "osdf:///x/train/"),
        ("osdf: {url: 'osdf:///x/train?recursive'}", "osdf:///x/train/"),
        ("osdf: {url: 'osdf:///x/train?recursive&directread'}", "osdf:///x/train/?directread"),
        ("http: {urls: ['https://a/t.tar', 'https://b/t.tar']}", [["https://a/t.tar", "https://b/t.tar"]]),
        ("http: {files: ['https://a/1.tar', 'https://a/2.tar']}", [["https://a/1.tar"], ["https://a/2.tar"]]),
        ("http: {url: 'https://a/{0..1}.tar'}", [["https://a/0.tar"], ["https://a/1.tar"]]),
        (
            "http: {urls: ['https://a/{0..1}.tar', 'https://b/s{0,1}.tar']}",
            [["https://a/0.tar", "https://b/s0.tar"], ["https://a/1.tar", "https://b/s1.tar"]],
        ),
        (f"s3: {S3 % '/data/train'}", "s3://b/data/train/"),
        (f"s3: {S3 % '/data/train/'}", "s3://b/data/train/"),
        (f"s3: {S3 % '/data/train.tar'}", [["s3://b/data/train.tar"]]),
        (f"s3: {S3 % '/data/{0..1}.tar'}", [["s3://b/data/0.tar"], ["s3://b/data/1.tar"]]),
    ],
)
def test_what_an_address_means(job, text, means):
    (source,) = job(f"input: {{{text}, mode: stream}}\n").inputs
    assert (addresses(source), source.mode, source.unpack, source.nested) == (means, "stream", "never", False)


@pytest.mark.parametrize("name", ["t.tar.gz", "t.TGZ", "t.tar.zst", "t.tar.xz", "t.7z"])
@pytest.mark.parametrize("source", ["http: {url: 'https://h/%s'}", "osdf: {path: '/%s'}", f"s3: {S3}"])
def test_what_is_compressed_is_refused_with_a_remedy(planned, source, name):
    path = f"/{name}" if source.startswith("s3") else name
    (message,) = texts(planned(f"input: {{{source % path}, mode: stream}}\n").diagnostics)
    assert message.startswith("w.yaml:2:")
    assert f"{name} is compressed, so single samples cannot be read from it" in message
    assert "use `mode: stage`, or repack it as a plain tar" in message


def test_a_digest_that_nobody_will_check_is_a_warning(planned):
    made = planned(f"input: {{http: {{url: 'https://h/t.tar', sha256: {'a' * 64}}}, mode: stream}}\n")
    assert not made.has_errors
    assert "is not read completely, so its sha256 is not checked" in texts(made.diagnostics, errors=False)[0]


def test_mirrors_with_different_numbers_of_shards(planned):
    made = planned("input: {http: {urls: ['https://a/{0..1}.tar', 'https://b/0.tar']}, mode: stream}\n")
    assert "expand to different numbers of archives" in texts(made.diagnostics)[0]


@pytest.mark.parametrize("key", ["unpack: auto", "nested: true", "transfer: condor", "transfer: plugin"])
def test_what_makes_no_sense_together(key):
    found = load_workflow_text(f"{AROUND}inputs: {{data: {{osdf: {{path: /t.tar}}, mode: stream, {key}}}}}\n", "w.yaml")
    (message,) = texts(found.diagnostics)
    assert f"inputs.data.{key.partition(':')[0]} with `mode: stream`: " in message
    assert message.endswith("remove it")


@pytest.mark.parametrize("key", ["unpack: never", "nested: false", "transfer: agent", "transfer: auto"])
def test_what_says_the_same_twice_is_fine(key):
    found = load_workflow_text(f"{AROUND}inputs: {{data: {{osdf: {{path: /t.tar}}, mode: stream, {key}}}}}\n", "w.yaml")
    assert texts(found.diagnostics) == []


def test_streamed_data_need_no_disk(planned):
    made = planned("inputs: {data: {osdf: {path: /t.tar}, mode: stream}}\n").plan
    assert plan_summary.summarize_plan(made).disk_bytes == 0


# From the index to the plan, and from there to the samples


@pytest.fixture
def served(tmp_path):
    """Three tars of two samples each."""
    (tmp_path / "served").mkdir()
    for number in range(3):
        with tarfile.open(tmp_path / "served" / f"part-{number}.tar", "w") as tar:
            for name in ("a", "b"):
                member = tarfile.TarInfo(f"c{number}/{name}.bin")
                member.size = 4
                tar.addfile(member, io.BytesIO(f"{name}{number}xx".encode()))
    with HttpServer(tmp_path / "served") as origin:
        yield origin


def indexed(made, tmp_path):
    """The plan as a run has it, and its one input that is streamed."""
    (source,) = stream_planner.streamed_inputs(made)
    got = get_or_build_index(stream_planner.make_index_request(source, str, 1.0), tmp_path / "cache")
    run = tmp_path / "run"
    complete = stream_planner.add_indexes(made, {source: got.index}, run)
    run.mkdir()
    (run / got.index.path.name).write_bytes(got.index.path.read_bytes())
    return complete.jobs[0].inputs[0]


def samples_of(source, tmp_path):
    """As a program gets them."""
    index = tmp_path / "here"
    index.write_bytes(FileBackend().open(source.index.locations[0]).read(1 << 20))
    told = tmp_path / "x.packtrain-stream"
    StreamConfig(str(index), tuple(item.locations for item in source.files)).write(told)
    found, settings = open_job_stream(told)
    return [data for data, _ in StreamingSamples(found, settings=settings).__getitems__(range(len(found)))]


EVERYTHING = [f"{name}{number}xx".encode() for number in range(3) for name in "ab"]


def test_shards(planned, served, tmp_path):
    text = f"inputs: {{data: {{http: {{url: '{served.url}/part-{{0..2}}.tar', headers: {{X: y}}}}, mode: stream}}}}\n"
    source = indexed(planned(text).plan, tmp_path)
    assert [item.name for item in source.files] == ["part-0.tar", "part-1.tar", "part-2.tar"]
    assert all(item.locations[0].headers == (plan.HttpHeader("X", "y"),) for item in source.files)
    assert source.index.name == "part-0.tar.packtrain-index"
    assert source.index.size and source.prefix is None
    assert samples_of(source, tmp_path) == EVERYTHING


def test_a_folder_of_tars_becomes_its_tars(planned, served, tmp_path):
    source = indexed(planned(f"input: {{file: {{path: {served.folder}}}, mode: stream}}\n").plan, tmp_path)
    assert [item.locations[0].url for item in source.files] == [
        (served.folder / f"part-{number}.tar").as_uri() for number in range(3)
    ]
    assert source.index.name == "served.packtrain-index"
    assert samples_of(source, tmp_path) == EVERYTHING


def test_a_folder_of_files_stays_a_folder(planned, tmp_path):
    for name, number in (("a", 0), ("b", 0), ("c", 1)):
        place = tmp_path / "files" / f"class-{number}" / f"{name}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(name.encode())
    source = indexed(planned(f"input: {{file: {{path: {tmp_path / 'files'}}}, mode: stream}}\n").plan, tmp_path)
    assert [item.locations[0].url for item in source.files] == [(tmp_path / "files").as_uri() + "/"]
    assert samples_of(source, tmp_path) == [b"a", b"b", b"c"]


def test_mirrors_are_asked_in_their_order(planned, served, tmp_path):
    urls = [f"{served.url}/part-0.tar", f"{served.url}/part-0.tar?again"]
    source = indexed(planned(f"input: {{http: {{urls: {urls}}}, mode: stream}}\n").plan, tmp_path)
    assert [ref.url for ref in source.files[0].locations] == urls


def test_jobs_that_stream_the_same_share_an_index(planned):
    made = planned("matrix: {lr: [1, 2]}\ninput: {osdf: {path: /t.tar}, mode: stream}\n").plan
    assert len(made.jobs) == 2 and len(stream_planner.streamed_inputs(made)) == 1
    other = planned("matrix: {lr: [1, 2]}\ninput: {osdf: {path: '/{lr}.tar'}, mode: stream}\n").plan
    assert len(stream_planner.streamed_inputs(other)) == 2


def test_a_plan_with_an_index_survives_its_own_form(planned, served, tmp_path):
    source = indexed(planned(f"input: {{file: {{path: {served.folder}}}, mode: stream}}\n").plan, tmp_path)
    assert plan.decode(plan.Input, plan.encode(source)) == source
