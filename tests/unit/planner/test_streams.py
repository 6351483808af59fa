"""Inputs with `mode: stream`: URLs, errors, and indexes in the plan."""

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
BASE_YAML = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 0}\nsteps: [{run: {command: 'true'}}]\n"


def messages(diagnostics, errors=True):
    return [str(diagnostic) for diagnostic in diagnostics if diagnostic.is_error == errors]


def urls_of(source):
    return (
        source.prefix.url
        if source.prefix
        else [[location.url for location in remote_file.locations] for remote_file in source.files]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_stream_urls(plan_job, text, expected):
    (source,) = plan_job(f"input: {{{text}, mode: stream}}\n").inputs
    assert (urls_of(source), source.mode, source.unpack, source.nested) == (expected, "stream", "never", False)


@pytest.mark.parametrize("name", ["t.tar.gz", "t.TGZ", "t.tar.zst", "t.tar.xz", "t.7z"])
@pytest.mark.parametrize("source", ["http: {url: 'https://h/%s'}", "osdf: {path: '/%s'}", f"s3: {S3}"])
def test_compressed_archives(plan_workflow, source, name):
    path = f"/{name}" if source.startswith("s3") else name
    (message,) = messages(plan_workflow(f"input: {{{source % path}, mode: stream}}\n").diagnostics)
    assert message.startswith("w.yaml:2:")
    assert f"{name} is compressed, so single samples cannot be read from it" in message
    assert "use `mode: stage`, or repack it as a plain tar" in message


def test_unchecked_digest(plan_workflow):
    plan_result = plan_workflow(f"input: {{http: {{url: 'https://h/t.tar', sha256: {'a' * 64}}}, mode: stream}}\n")
    assert not plan_result.has_errors
    assert "is not read completely, so its sha256 is not checked" in messages(plan_result.diagnostics, errors=False)[0]


def test_mirrors_with_different_shard_counts(plan_workflow):
    plan_result = plan_workflow("input: {http: {urls: ['https://a/{0..1}.tar', 'https://b/0.tar']}, mode: stream}\n")
    assert "expand to different numbers of archives" in messages(plan_result.diagnostics)[0]


@pytest.mark.parametrize("key", ["unpack: auto", "nested: true", "transfer: condor", "transfer: plugin"])
def test_conflicting_keys(key):
    result = load_workflow_text(
        f"{BASE_YAML}inputs: {{data: {{osdf: {{path: /t.tar}}, mode: stream, {key}}}}}\n", "w.yaml"
    )
    (message,) = messages(result.diagnostics)
    assert f"inputs.data.{key.partition(':')[0]} with `mode: stream`: " in message
    assert message.endswith("remove it")


@pytest.mark.parametrize("key", ["unpack: never", "nested: false", "transfer: agent", "transfer: auto"])
def test_redundant_keys(key):
    result = load_workflow_text(
        f"{BASE_YAML}inputs: {{data: {{osdf: {{path: /t.tar}}, mode: stream, {key}}}}}\n", "w.yaml"
    )
    assert messages(result.diagnostics) == []


def test_streams_need_no_disk(plan_workflow):
    plan_result = plan_workflow("inputs: {data: {osdf: {path: /t.tar}, mode: stream}}\n").plan
    assert plan_summary.summarize_plan(plan_result).disk_bytes == 0


# From an index to the plan and its samples


@pytest.fixture
def archive_server(tmp_path):
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


def index_stream(base_plan, tmp_path):
    """Index the only streamed input of a plan and return it as the run has it."""
    (source,) = stream_planner.streamed_inputs(base_plan)
    entry = get_or_build_index(stream_planner.make_index_request(source, str, 1.0), tmp_path / "cache")
    run_dir = tmp_path / "run"
    indexed_plan = stream_planner.add_indexes(base_plan, {source: entry.index}, run_dir)
    run_dir.mkdir()
    (run_dir / entry.index.path.name).write_bytes(entry.index.path.read_bytes())
    return indexed_plan.jobs[0].inputs[0]


def samples_of(source, tmp_path):
    """Read all samples as a program does."""
    index_path = tmp_path / "index"
    index_path.write_bytes(FileBackend().open(source.index.locations[0]).read(1 << 20))
    config_path = tmp_path / "x.packtrain-stream"
    StreamConfig(str(index_path), tuple(remote_file.locations for remote_file in source.files)).write(config_path)
    index, settings = open_job_stream(config_path)
    return [data for data, _ in StreamingSamples(index, settings=settings).__getitems__(range(len(index)))]


ALL_SAMPLES = [f"{name}{number}xx".encode() for number in range(3) for name in "ab"]


def test_sharded_stream(plan_workflow, archive_server, tmp_path):
    url = f"{archive_server.url}/part-{{0..2}}.tar"
    text = f"inputs: {{data: {{http: {{url: '{url}', headers: {{X: y}}}}, mode: stream}}}}\n"
    source = index_stream(plan_workflow(text).plan, tmp_path)
    assert [remote_file.name for remote_file in source.files] == ["part-0.tar", "part-1.tar", "part-2.tar"]
    assert all(remote_file.locations[0].headers == (plan.HttpHeader("X", "y"),) for remote_file in source.files)
    assert source.index.name == "part-0.tar.packtrain-index"
    assert source.index.size and source.prefix is None
    assert samples_of(source, tmp_path) == ALL_SAMPLES


def test_folder_of_tars(plan_workflow, archive_server, tmp_path):
    text = f"input: {{file: {{path: {archive_server.folder}}}, mode: stream}}\n"
    source = index_stream(plan_workflow(text).plan, tmp_path)
    assert [remote_file.locations[0].url for remote_file in source.files] == [
        (archive_server.folder / f"part-{number}.tar").as_uri() for number in range(3)
    ]
    assert source.index.name == "served.packtrain-index"
    assert samples_of(source, tmp_path) == ALL_SAMPLES


def test_folder_of_files(plan_workflow, tmp_path):
    for name, number in (("a", 0), ("b", 0), ("c", 1)):
        path = tmp_path / "files" / f"class-{number}" / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    source = index_stream(
        plan_workflow(f"input: {{file: {{path: {tmp_path / 'files'}}}, mode: stream}}\n").plan, tmp_path
    )
    assert [remote_file.locations[0].url for remote_file in source.files] == [(tmp_path / "files").as_uri() + "/"]
    assert samples_of(source, tmp_path) == [b"a", b"b", b"c"]


def test_mirror_order(plan_workflow, archive_server, tmp_path):
    urls = [f"{archive_server.url}/part-0.tar", f"{archive_server.url}/part-0.tar?again"]
    source = index_stream(plan_workflow(f"input: {{http: {{urls: {urls}}}, mode: stream}}\n").plan, tmp_path)
    assert [location.url for location in source.files[0].locations] == urls


def test_jobs_share_index(plan_workflow):
    plan_result = plan_workflow("matrix: {lr: [1, 2]}\ninput: {osdf: {path: /t.tar}, mode: stream}\n").plan
    assert len(plan_result.jobs) == 2 and len(stream_planner.streamed_inputs(plan_result)) == 1
    plan_result = plan_workflow("matrix: {lr: [1, 2]}\ninput: {osdf: {path: '/{lr}.tar'}, mode: stream}\n").plan
    assert len(stream_planner.streamed_inputs(plan_result)) == 2


def test_indexed_input_round_trip(plan_workflow, archive_server, tmp_path):
    text = f"input: {{file: {{path: {archive_server.folder}}}, mode: stream}}\n"
    source = index_stream(plan_workflow(text).plan, tmp_path)
    assert plan.decode(plan.Input, plan.encode(source)) == source
