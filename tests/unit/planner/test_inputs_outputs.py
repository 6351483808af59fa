"""Inputs and outputs of a plan."""

import pytest

from packtrain import plan
from packtrain.errors import TransferError
from packtrain.transfer.urls import filename_from_url

S3 = "{region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://s3.example/'%s}"


def errors(result):
    return [str(diagnostic) for diagnostic in result.diagnostics if diagnostic.is_error]


def test_http_file(plan_job):
    (source,) = plan_job(
        "input: {http: {url: 'https://h.example/a/cifar%20x.tar.gz?v=1', sha256: " + "A" * 64 + "}}\n"
    ).inputs
    (remote_file,) = source.files
    assert (source.name, source.folder, source.unpack) == ("", "input", "auto")
    assert remote_file.name == "cifar x.tar.gz"
    assert remote_file.digest == plan.Digest("sha256", "a" * 64)
    assert remote_file.locations == (plan.Location("https://h.example/a/cifar%20x.tar.gz?v=1"),)


@pytest.mark.parametrize(
    ("given", "digest"),
    [
        ("md5: 25F9E794323B453885F5181F1B624D0B", plan.Digest("md5", "25f9e794323b453885f5181f1b624d0b")),
        ("md5: JfnnlDI7RTiF9RgfG2JNCw==", plan.Digest("md5", "25f9e794323b453885f5181f1b624d0b")),
        ("md5: 00000000000000000000000000069283", plan.Digest("md5", "0" * 26 + "069283")),  # YAML: both are numbers
        ("md5: 1234567890123456789012345678e123", plan.Digest("md5", "1234567890123456789012345678e123")),
    ],
)
def test_digests(plan_job, given, digest):
    for source in ("http: {url: 'https://h.example/a', %s}", "http: {files: [{url: 'https://h.example/a', %s}]}"):
        assert plan_job(f"input: {{{source % given}}}\n").inputs[0].files[0].digest == digest
    assert plan_job(f"input: {{osdf: {{path: /a, {given}}}}}\n").inputs[0].files[0].digest == digest


@pytest.mark.parametrize("given", ["E3069283", "4waSgw==", "00069283", "12345e67"])  # YAML parses two as numbers
@pytest.mark.parametrize(
    "source", ["http: {url: 'https://h/a', %s}", "http: {files: [{url: 'https://h/a', %s}]}", "osdf: {path: /a, %s}"]
)
def test_crc32c_is_refused(plan_workflow, source, given):
    """Jobs cannot compute it."""
    text = f"input: {{{source % f'crc32c: {given}'}}}\n"
    (diagnostic,) = plan_workflow(text).diagnostics
    assert diagnostic.is_error
    assert "a job cannot check the crc32c of a, because Python has no crc32c" in diagnostic.message
    assert diagnostic.column == text.index(given) + 1


def test_checksums_files(plan_job):
    url = "https://h.example/a.checksums.json"
    for source in ("http: {url: 'https://h.example/a', %s}", "http: {files: [{url: 'https://h.example/a', %s}]}"):
        (remote_file,) = plan_job(f"input: {{{source % f'checksums: {url!r}'}}}\n").inputs[0].files
        assert remote_file.checksums == plan.Location(url)
    (remote_file,) = (
        plan_job("input: {osdf: {path: /a, checksums: 'osdf://nrp/a.json', token: '${env:T}'}}\n").inputs[0].files
    )
    assert remote_file.checksums == plan.Location("osdf:///nrp/a.json", token=plan.Secret("T"))


def test_checksums_file_uses_token(plan_job):
    given = "url: 'https://h.example/a', checksums: 'https://h.example/b', token: '${env:T}'"
    (remote_file,) = plan_job(f"input: {{http: {{{given}}}}}\n").inputs[0].files
    assert remote_file.checksums == plan.Location("https://h.example/b", token=plan.Secret("T"))


def test_checksums_file_for_folder(plan_workflow):
    (message,) = errors(plan_workflow("input: {osdf: {path: /a/, checksums: 'osdf:///b'}}\n"))
    assert "a checksums file belongs to one object" in message


def test_mirrors(plan_job):
    (remote_file,) = plan_job("input: {http: {urls: ['https://a.example/x', 'https://b.example/y']}}\n").inputs[0].files
    assert remote_file.name == "x"
    assert [location.url for location in remote_file.locations] == ["https://a.example/x", "https://b.example/y"]


def test_multiple_files(plan_job):
    files = "['https://a.example/x', {url: 'https://a.example/x', name: sub/y}]"
    remote_files = plan_job(f"input: {{http: {{files: {files}, token: '${{env:T}}'}}}}\n").inputs[0].files
    assert [remote_file.name for remote_file in remote_files] == ["x", "sub/y"]
    assert {remote_file.locations[0].token for remote_file in remote_files} == {plan.Secret("T")}


def test_duplicate_names(plan_workflow):
    result = plan_workflow("input: {http: {files: ['https://a.example/x', 'https://b.example/x']}}\n")
    assert errors(result) == ["w.yaml:2:47: two files of input.http have the name x; give one of them a `name`"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/", "data"),
        ("https://h", "data"),
        ("https://h/a/..", "data"),
        ("https://h/a%2Fb", "a_b"),
        ("osdf:///x/y", "y"),
    ],
)
def test_filename_from_url(url, name):
    assert filename_from_url(url) == name


def test_filename_from_bad_url():
    with pytest.raises(TransferError, match="is not a valid address"):
        filename_from_url("http://[bad/x.tar")


def test_s3_input(plan_job):
    (source,) = plan_job("input: {s3: " + S3 % ", accessKeyId: AK, secretAccessKey: '${env:SK}'" + "}\n").inputs
    assert source.unpack == "never"
    assert source.prefix == plan.Location(
        "s3://b/p", s3=plan.S3Access("r", "https://s3.example", access_key="AK", secret_key=plan.Secret("SK"))
    )


def test_s3_without_keys(plan_job):
    assert plan_job("input: {s3: " + S3 % "" + "}\n").inputs[0].prefix.s3.access_key is None


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("path: /nrp/x.tar", "osdf:///nrp/x.tar"),
        ("url: 'osdf:///nrp/x.tar'", "osdf:///nrp/x.tar"),
        ("url: 'osdf://nrp/x.tar'", "osdf:///nrp/x.tar"),
        ("url: 'pelican://f.example/x.tar'", "pelican://f.example/x.tar"),
    ],
)
def test_osdf_urls(plan_job, given, url):
    (remote_file,) = plan_job(f"input: {{osdf: {{{given}}}}}\n").inputs[0].files
    assert (remote_file.name, remote_file.locations[0].url) == ("x.tar", url)


@pytest.mark.parametrize("path", ["/nrp/x/", "/nrp/x?recursive", "/nrp/x?directread&recursive"])
def test_osdf_folder(plan_job, path):
    assert plan_job(f"input: {{osdf: {{path: '{path}'}}}}\n").inputs[0].prefix.url == f"osdf://{path}"


def test_osdf_query(plan_job):
    (remote_file,) = plan_job("input: {osdf: {path: '/nrp/x.tar?directread'}}\n").inputs[0].files
    assert (remote_file.name, remote_file.locations[0].url) == ("x.tar", "osdf:///nrp/x.tar?directread")


def test_local_file(plan_job, tmp_path):
    (tmp_path / "a b.tar").touch()
    (remote_file,) = plan_job("inputs: {d: {file: {path: ./a b.tar}}}\n").inputs[0].files
    assert remote_file.locations[0].url == (tmp_path / "a b.tar").as_uri()
    assert remote_file.name == "a b.tar"


def test_local_folder(plan_job, tmp_path):
    (tmp_path / "d").mkdir()
    (source,) = plan_job("inputs: {d: {file: {path: d}}}\ninputMode: 0444\n").inputs
    assert (source.folder, source.prefix, source.unpack) == (
        "inputs/d",
        plan.Location((tmp_path / "d").as_uri()),
        "never",
    )
    assert source.chmod == 0o444


def test_missing_local_file(plan_workflow, tmp_path):
    (message,) = errors(plan_workflow("input: {file: {path: none}}\n"))
    assert message == f"w.yaml:2:22: {tmp_path}/none does not exist; paths are relative to the workflow file"


def test_inaccessible_path(plan_workflow):
    (message,) = errors(plan_workflow(f"input: {{file: {{path: {'x' * 300}}}}}\n"))
    assert "cannot be accessed (File name too long)" in message


def test_special_file(plan_workflow):
    (message,) = errors(plan_workflow("input: {file: {path: /dev/null}}\n"))
    assert "/dev/null is neither a file nor a folder" in message


@pytest.mark.parametrize(("name", "digits"), [("sha256", 64), ("md5", 32), ("crc32c", 8)])
def test_digest_for_folder(plan_workflow, name, digits):
    (message,) = errors(plan_workflow(f"input: {{osdf: {{path: /x/, {name}: {'a' * digits}}}}}\n"))
    assert f"{name} is the digest of one object, but the URL is a folder" in message


def test_archive_that_needs_program(plan_workflow):
    (diagnostic,) = plan_workflow("input: {http: {url: 'https://h/x.7z'}}\n").diagnostics
    assert not diagnostic.is_error
    assert "only on nodes that have the program 7z" in diagnostic.message
    assert plan_workflow("input: {http: {url: 'https://h/x.7z'}, unpack: never}\n").diagnostics == ()


def test_default_output(plan_job, tmp_path):
    folder = tmp_path / ".packtrain" / "runs" / "r1" / "jobs" / "0" / "output"
    assert plan_job().output == plan.Output(plan.Location(folder.as_uri()))
    assert plan_job(engine="htcondor").output == plan_job().output, "the engine retrieves it"


def test_output_placeholders(plan_workflow, tmp_path):
    result = plan_workflow("matrix: {lr: [0.10, 1e-3]}\noutput: {file: {path: 'out/{name}/{run}/{job}-{lr}'}}\n")
    urls = [planned_job.output.location.url for planned_job in result.plan.jobs]
    assert urls == [(tmp_path / "out" / "w" / "r1" / part).as_uri() for part in ("0-0.10", "1-1e-3")]


def test_output_is_a_file(plan_workflow, tmp_path):
    (tmp_path / "out").touch()
    assert "is a file; outputs need a folder" in errors(plan_workflow("output: {file: {path: out}}\n"))[0]


def test_output_retry_timeout(plan_job):
    assert plan_job("output: {file: {path: out}, retryTimeout: 2h}\n").output.retry_timeout_s == 7200.0
    assert plan_job("output: {file: {path: out}}\n").output.retry_timeout_s is None


def test_s3_output(plan_job):
    output = plan_job("continuousOutputSync: true\noutput: {s3: " + S3 % ", deleteSync: true" + "}\n").output
    assert (output.location.url, output.continuous_sync, output.delete_sync) == ("s3://b/p", True, True)


def test_http_output_is_not_synced_continuously(plan_job):
    assert not plan_job("continuousOutputSync: true\noutput: {http: {url: 'https://a/x'}}\n").output.continuous_sync


def test_http_output(plan_job):
    output = plan_job("output: {http: {url: 'https://h/up', headers: {X-Token: abc, Accept: x}}}\n").output
    assert output.location.headers == (
        plan.HttpHeader("X-Token", plan.Secret("output-http-headers-X-Token")),
        plan.HttpHeader("Accept", "x"),
    )


def test_input_folder(plan_workflow, tmp_path):
    (tmp_path / "a").touch()
    result = plan_workflow("count: 2\ninputs: {a: {file: {path: a}, folder: 'work/{job}'}, b: {file: {path: a}}}\n")
    assert [source.folder for source in result.plan.jobs[1].inputs] == ["work/1", "inputs/b"]
    for folder in ("output", "tmp/x", "."):
        result = plan_workflow(f"inputs: {{a: {{file: {{path: a}}, folder: {folder}}}}}\n")
        assert any("cannot be the folder of an input" in diagnostic.message for diagnostic in result.diagnostics)
