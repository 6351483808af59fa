"""Inputs and outputs of a plan."""

import pytest

from packtrain import plan
from packtrain.errors import TransferError
from packtrain.transfer.urls import filename_from_url

S3 = "{region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://s3.example/'%s}"


def errors(made):
    return [str(problem) for problem in made.diagnostics if problem.is_error]


def test_a_file_from_the_web(job):
    (source,) = job(
        "input: {http: {url: 'https://h.example/a/cifar%20x.tar.gz?v=1', sha256: " + "A" * 64 + "}}\n"
    ).inputs
    (item,) = source.files
    assert (source.name, source.folder, source.unpack) == ("", "input", "auto")
    assert item.name == "cifar x.tar.gz"
    assert item.digest == plan.Digest("sha256", "a" * 64)
    assert item.locations == (plan.Location("https://h.example/a/cifar%20x.tar.gz?v=1"),)


@pytest.mark.parametrize(
    ("given", "digest"),
    [
        ("md5: 25F9E794323B453885F5181F1B624D0B", plan.Digest("md5", "25f9e794323b453885f5181f1b624d0b")),
        ("md5: JfnnlDI7RTiF9RgfG2JNCw==", plan.Digest("md5", "25f9e794323b453885f5181f1b624d0b")),
        ("crc32c: E3069283", plan.Digest("crc32c", "e3069283")),
        ("crc32c: 4waSgw==", plan.Digest("crc32c", "e3069283")),
        ("crc32c: 00069283", plan.Digest("crc32c", "00069283")),  # YAML takes these two for numbers
        ("crc32c: 12345e67", plan.Digest("crc32c", "12345e67")),
    ],
)
def test_other_digests(job, given, digest):
    for source in ("http: {url: 'https://h.example/a', %s}", "http: {files: [{url: 'https://h.example/a', %s}]}"):
        assert job(f"input: {{{source % given}}}\n").inputs[0].files[0].digest == digest
    assert job(f"input: {{osdf: {{path: /a, {given}}}}}\n").inputs[0].files[0].digest == digest


def test_checksums_files(job):
    url = "https://h.example/a.checksums.json"
    for source in ("http: {url: 'https://h.example/a', %s}", "http: {files: [{url: 'https://h.example/a', %s}]}"):
        (item,) = job(f"input: {{{source % f'checksums: {url!r}'}}}\n").inputs[0].files
        assert item.checksums == plan.Location(url)
    (item,) = job("input: {osdf: {path: /a, checksums: 'osdf://nrp/a.json', token: '${env:T}'}}\n").inputs[0].files
    assert item.checksums == plan.Location("osdf:///nrp/a.json", token=plan.Secret("T"))


def test_the_token_of_a_checksums_file_is_that_of_the_address(job):
    given = "url: 'https://h.example/a', checksums: 'https://h.example/b', token: '${env:T}'"
    (item,) = job(f"input: {{http: {{{given}}}}}\n").inputs[0].files
    assert item.checksums == plan.Location("https://h.example/b", token=plan.Secret("T"))


def test_a_checksums_file_of_many_objects_is_a_problem(planned):
    (message,) = errors(planned("input: {osdf: {path: /a/, checksums: 'osdf:///b'}}\n"))
    assert "a checksums file belongs to one object" in message


def test_mirrors_are_sources_of_one_item(job):
    (item,) = job("input: {http: {urls: ['https://a.example/x', 'https://b.example/y']}}\n").inputs[0].files
    assert item.name == "x"
    assert [ref.url for ref in item.locations] == ["https://a.example/x", "https://b.example/y"]


def test_several_files(job):
    files = "['https://a.example/x', {url: 'https://a.example/x', name: sub/y}]"
    items = job(f"input: {{http: {{files: {files}, token: '${{env:T}}'}}}}\n").inputs[0].files
    assert [item.name for item in items] == ["x", "sub/y"]
    assert {item.locations[0].token for item in items} == {plan.Secret("T")}


def test_two_files_of_one_name_are_refused(planned):
    made = planned("input: {http: {files: ['https://a.example/x', 'https://b.example/x']}}\n")
    assert errors(made) == ["w.yaml:2:47: two files of input.http have the name x; give one of them a `name`"]


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
def test_names_from_addresses_never_leave_the_folder(url, name):
    assert filename_from_url(url) == name


def test_what_is_no_address_has_no_name():
    with pytest.raises(TransferError, match="is not a valid address"):
        filename_from_url("http://[bad/x.tar")


def test_s3_is_a_prefix_and_is_not_unpacked(job):
    (source,) = job("input: {s3: " + S3 % ", accessKeyId: AK, secretAccessKey: '${env:SK}'" + "}\n").inputs
    assert source.unpack == "never"
    assert source.prefix == plan.Location(
        "s3://b/p", s3=plan.S3Access("r", "https://s3.example", access_key="AK", secret_key=plan.Secret("SK"))
    )


def test_s3_without_keys_is_unsigned(job):
    assert job("input: {s3: " + S3 % "" + "}\n").inputs[0].prefix.s3.access_key is None


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("path: /nrp/x.tar", "osdf:///nrp/x.tar"),
        ("url: 'osdf:///nrp/x.tar'", "osdf:///nrp/x.tar"),
        ("url: 'osdf://nrp/x.tar'", "osdf:///nrp/x.tar"),
        ("url: 'pelican://f.example/x.tar'", "pelican://f.example/x.tar"),
    ],
)
def test_osdf_addresses_are_paths(job, given, url):
    (item,) = job(f"input: {{osdf: {{{given}}}}}\n").inputs[0].files
    assert (item.name, item.locations[0].url) == ("x.tar", url)


@pytest.mark.parametrize("path", ["/nrp/x/", "/nrp/x?recursive", "/nrp/x?directread&recursive"])
def test_an_osdf_address_of_a_folder_means_all_below(job, path):
    assert job(f"input: {{osdf: {{path: '{path}'}}}}\n").inputs[0].prefix.url == f"osdf://{path}"


def test_other_flags_of_an_osdf_address_stay(job):
    (item,) = job("input: {osdf: {path: '/nrp/x.tar?directread'}}\n").inputs[0].files
    assert (item.name, item.locations[0].url) == ("x.tar", "osdf:///nrp/x.tar?directread")


def test_local_files_are_relative_to_the_workflow(job, tmp_path):
    (tmp_path / "a b.tar").touch()
    (item,) = job("inputs: {d: {file: {path: ./a b.tar}}}\n").inputs[0].files
    assert item.locations[0].url == (tmp_path / "a b.tar").as_uri()
    assert item.name == "a b.tar"


def test_a_local_folder_is_a_prefix(job, tmp_path):
    (tmp_path / "d").mkdir()
    (source,) = job("inputs: {d: {file: {path: d}}}\ninputMode: 0444\n").inputs
    assert (source.folder, source.prefix, source.unpack) == (
        "inputs/d",
        plan.Location((tmp_path / "d").as_uri()),
        "never",
    )
    assert source.chmod == 0o444


def test_a_local_file_that_does_not_exist_is_a_problem(planned, tmp_path):
    (message,) = errors(planned("input: {file: {path: none}}\n"))
    assert message == f"w.yaml:2:22: {tmp_path}/none does not exist; paths are relative to the workflow file"


def test_a_path_that_cannot_even_be_asked_for_is_a_problem(planned):
    (message,) = errors(planned(f"input: {{file: {{path: {'x' * 300}}}}}\n"))
    assert "cannot be accessed (File name too long)" in message


def test_a_local_path_that_is_no_file_is_a_problem(planned):
    (message,) = errors(planned("input: {file: {path: /dev/null}}\n"))
    assert "/dev/null is neither a file nor a folder" in message


@pytest.mark.parametrize(("name", "digits"), [("sha256", 64), ("md5", 32), ("crc32c", 8)])
def test_a_digest_of_many_objects_is_a_problem(planned, name, digits):
    (message,) = errors(planned(f"input: {{osdf: {{path: /x/, {name}: {'a' * digits}}}}}\n"))
    assert f"{name} is the digest of one object, but the URL is a folder" in message


def test_archives_that_need_a_tool_are_named_before_the_job_starts(planned):
    (problem,) = planned("input: {http: {url: 'https://h/x.7z'}}\n").diagnostics
    assert not problem.is_error
    assert "only on nodes that have the program 7z" in problem.message
    assert planned("input: {http: {url: 'https://h/x.7z'}, unpack: never}\n").diagnostics == ()


def test_without_an_output_it_goes_to_the_runs_folder(job, tmp_path):
    folder = tmp_path / ".packtrain" / "runs" / "r1" / "jobs" / "0" / "output"
    assert job().output == plan.Output(plan.Location(folder.as_uri()))
    assert job(engine="htcondor").output == job().output, "the engine brings it home"


def test_output_paths_are_filled_in(planned, tmp_path):
    made = planned("matrix: {lr: [0.10, 1e-3]}\noutput: {file: {path: 'out/{name}/{run}/{job}-{lr}'}}\n")
    urls = [job.output.location.url for job in made.plan.jobs]
    assert urls == [(tmp_path / "out" / "w" / "r1" / part).as_uri() for part in ("0-0.10", "1-1e-3")]


def test_an_output_that_is_a_file_is_refused(planned, tmp_path):
    (tmp_path / "out").touch()
    assert "is a file; outputs need a folder" in errors(planned("output: {file: {path: out}}\n"))[0]


def test_the_patience_of_an_output(job):
    assert job("output: {file: {path: out}, retryTimeout: 2h}\n").output.retry_timeout_s == 7200.0
    assert job("output: {file: {path: out}}\n").output.retry_timeout_s is None


def test_output_to_s3(job):
    output = job("continuousOutputSync: true\noutput: {s3: " + S3 % ", deleteSync: true" + "}\n").output
    assert (output.location.url, output.continuous_sync, output.delete_sync) == ("s3://b/p", True, True)


def test_output_to_an_address(job):
    output = job("output: {http: {url: 'https://h/up', headers: {X-Token: abc, Accept: x}}}\n").output
    assert output.location.headers == (
        plan.HttpHeader("X-Token", plan.Secret("output-http-headers-X-Token")),
        plan.HttpHeader("Accept", "x"),
    )


def test_an_input_lands_where_it_is_wanted(planned, tmp_path):
    (tmp_path / "a").touch()
    made = planned("count: 2\ninputs: {a: {file: {path: a}, folder: 'work/{job}'}, b: {file: {path: a}}}\n")
    assert [source.folder for source in made.plan.jobs[1].inputs] == ["work/1", "inputs/b"]
    for folder in ("output", "tmp/x", "."):
        refused = planned(f"inputs: {{a: {{file: {{path: a}}, folder: {folder}}}}}\n")
        assert any("cannot be the folder of an input" in problem.message for problem in refused.diagnostics)
