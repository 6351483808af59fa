"""Validators of output files: what they report, and that damage is never accepted."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.agent.outputs.check import check_expectation
from packtrain.agent.outputs.validators import archive, json_bounds, torch_file, validators_for
from packtrain.agent.outputs.validators.float_formats import FLOAT_FORMATS, find_non_finite
from packtrain.errors import FailedError
from packtrain.plan import Bound, ExpectedOutput
from tests.support.paths import TESTS_DIR

MODELS = TESTS_DIR / "golden" / "models"


def problem_of(validate, path):
    return validate(path, lambda: None)


# Torch files


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_valid_model(name):
    assert problem_of(torch_file.validate, MODELS / f"{name}.pt") is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "nan",
            "the tensor 0.weight has 2 values that are not finite (NaN or infinite), of 6, and so has 1 other tensor",
        ),
        ("nan-legacy", " not finite (NaN or infinite), of "),
        ("empty", "it contains no tensors"),
        (
            "whole-module",
            "it contains torch.nn.modules.container.Sequential, which torch.load(weights_only=True) rejects; "
            "save a state_dict",
        ),
    ],
)
def test_invalid_model(name, problem):
    assert problem in problem_of(torch_file.validate, MODELS / f"{name}.pt")


def test_not_a_model(tmp_path):
    path = tmp_path / "model.pt"
    path.write_text("<html>404 page not found</html>")
    assert "it is not a file of torch.save" in problem_of(torch_file.validate, path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "hello")
    assert problem_of(torch_file.validate, path) == "it is a zip file, but not one of torch.save: it has no data.pkl"


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_truncated_model(tmp_path, name):
    content, path = (MODELS / f"{name}.pt").read_bytes(), tmp_path / "model.pt"
    for length in {*range(1, len(content) - 1, 13), len(content) - 2}:
        path.write_bytes(content[:length])
        assert problem_of(torch_file.validate, path), f"truncated to {length} bytes"


def test_flipped_bit_in_values(tmp_path):
    content, path = bytearray((MODELS / "good.pt").read_bytes()), tmp_path / "model.pt"
    with zipfile.ZipFile(MODELS / "good.pt") as file:
        (record,) = (info for info in file.infolist() if info.filename.endswith("/data/0"))
        values = file.read(record)
    start = bytes(content).index(values)
    for offset in range(start, start + len(values)):
        content[offset] ^= 1
        path.write_bytes(content)
        assert "it is damaged: Bad CRC-32" in problem_of(torch_file.validate, path)
        content[offset] ^= 1


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_damage_raises_no_exception(tmp_path, name):
    content, path = bytearray((MODELS / f"{name}.pt").read_bytes()), tmp_path / "model.pt"
    for offset in range(0, len(content), 3):
        content[offset] ^= 0x55
        path.write_bytes(content)
        assert isinstance(problem_of(torch_file.validate, path), (str, type(None)))
        content[offset] ^= 0x55


def test_missing_record(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(MODELS / "good.pt") as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            if not info.filename.endswith("/data/0"):
                new.writestr(info.filename, old.read(info))
    assert problem_of(torch_file.validate, path) == (
        "the tensor net.0.weight has no values: the record good/data/0 is missing"
    )


def test_pickle_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    import pickle

    with zipfile.ZipFile(tmp_path / "model.pt", "w") as file:
        file.writestr("m/data.pkl", pickle.dumps(Evil(), 2))
    assert "weights_only=True) rejects" in problem_of(torch_file.validate, tmp_path / "model.pt")
    assert not (tmp_path / "executed").exists()


def test_validation_can_be_cancelled(tmp_path):
    def cancel():
        raise FailedError("terminated", "cancelled")

    with tarfile.open(tmp_path / "a.tar", "w") as file:
        file.add(MODELS, "models")
    for validate, path in ((torch_file.validate, MODELS / "good.pt"), (archive.validate, tmp_path / "a.tar")):
        with pytest.raises(FailedError, match="cancelled"):
            validate(path, cancel)


# Float formats


@pytest.mark.parametrize("name", FLOAT_FORMATS)
@pytest.mark.parametrize("big_endian", [False, True])
def test_zeros_are_finite_and_set_bits_are_not(name, big_endian):
    float_format = FLOAT_FORMATS[name]
    zeros, ones = bytes(float_format.value_bytes), b"\xff" * float_format.value_bytes
    if name.endswith("fnuz"):  # these formats have one NaN, at minus zero
        ones = b"\x80"
    assert find_non_finite(zeros * 5 + ones + zeros * 3, float_format, big_endian) == [5]


# JSON


def json_problem(tmp_path, document, *bounds):
    path = tmp_path / "metrics.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return problem_of(json_bounds.make_validator(bounds), path)


@pytest.mark.parametrize(
    ("document", "bound"),
    [
        ({"accuracy": 0.5}, Bound("accuracy", min=0.5)),
        ({"accuracy": 1}, Bound("accuracy", 0.5, 1.0)),
        ({"test": {"loss": 1.5}}, Bound("test.loss", max=1.5)),
        ({"test.loss": 1.5}, Bound("test.loss", max=1.5)),
        ({"run": {"test.loss": 1.5}}, Bound("run.test.loss")),
        ({"epochs": [{"loss": 9}, {"loss": 1}]}, Bound("epochs.-1.loss", max=1)),
        ([0.1, 0.2], Bound("1", min=0.2)),
    ],
)
def test_within_bounds(tmp_path, document, bound):
    assert json_problem(tmp_path, document, bound) is None


@pytest.mark.parametrize(
    ("document", "bound", "problem"),
    [
        ({"accuracy": 0.31}, Bound("accuracy", min=0.5), "accuracy is 0.31, at least 0.5 was expected"),
        ({"loss": 9}, Bound("loss", max=2.0), "loss is 9, at most 2 was expected"),
        ('{"loss": NaN}', Bound("loss"), "loss is nan, which is not finite"),
        ('{"loss": -Infinity}', Bound("loss", max=1.0), "loss is -inf, which is not finite"),
        ('{"loss": 1e999}', Bound("loss"), "loss is inf, which is not finite"),
        ({"loss": "nan"}, Bound("loss"), 'loss is "nan", which is not a number'),
        ({"loss": None}, Bound("loss"), "loss is null, which is not a number"),
        ({"loss": True}, Bound("loss"), "loss is true, which is not a number"),
        ({"loss": 1, "epoch": 2}, Bound("accuracy"), "it has no 'accuracy'; it has loss, epoch"),
        ({"test": 1}, Bound("test.loss"), "it has no 'test.loss'"),
        ([1], Bound("7"), "it has no '7'; it has 1 entries"),
        ("{}", Bound("loss"), "it has no 'loss'; it has no keys"),
        ("epoch 1, loss 2", Bound("loss"), "it is not valid JSON: Expecting value"),
        ("[" * 100_000, Bound("loss"), "it is not valid JSON: "),
    ],
)
def test_not_within_bounds(tmp_path, document, bound, problem):
    assert problem in json_problem(tmp_path, document, bound)


def test_without_bounds_the_file_must_be_json(tmp_path):
    assert json_problem(tmp_path, "[]") is None
    assert json_problem(tmp_path, "[") is not None


# Archives


def archive_bytes(archive_format):
    """An archive with a file, a link and a folder."""
    buffer = io.BytesIO()
    if archive_format == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(MODELS / "good.pt", "sub/good.pt")
        return buffer.getvalue()
    if archive_format == "gz":
        return gzip.compress((MODELS / "good.pt").read_bytes(), mtime=0)
    with tarfile.open(fileobj=buffer, mode=f"w:{archive_format.partition('.')[2]}") as file:
        file.add(MODELS / "good.pt", "sub/good.pt")
        link = tarfile.TarInfo("sub/latest")
        link.type, link.linkname = tarfile.SYMTYPE, "good.pt"
        file.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("archive_format", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip", "gz"])
def test_complete_and_truncated_archive(tmp_path, archive_format):
    content, path = archive_bytes(archive_format), tmp_path / f"results.{archive_format}"
    path.write_bytes(content)
    assert problem_of(archive.validate, path) is None
    # A tar ends with zeros, which may be missing.
    end = content.rindex(b"good.pt") + 512 if archive_format == "tar" else len(content) - 1
    for length in {*range(1, end, 97), end}:
        path.write_bytes(content[:length])
        assert problem_of(archive.validate, path), f"truncated to {length} bytes of {len(content)}"


@pytest.mark.parametrize("archive_format", ["tar.gz", "zip", "gz"])
def test_flipped_byte_in_archive(tmp_path, archive_format):
    content, path = bytearray(archive_bytes(archive_format)), tmp_path / f"results.{archive_format}"
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert "cannot be read" in problem_of(archive.validate, path)


def test_npz_and_unsupported_files(tmp_path):
    (tmp_path / "arrays.npz").write_bytes(archive_bytes("zip"))
    assert problem_of(archive.validate, tmp_path / "arrays.npz") is None
    (tmp_path / "a.tar").write_text("text")
    assert problem_of(archive.validate, tmp_path / "a.tar") == "it is not an archive of a known format"
    (tmp_path / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(100))
    assert "a 7z archive, which cannot be checked" in problem_of(archive.validate, tmp_path / "a.7z")


# Expectations


def test_failure_names_file_and_check(tmp_path):
    (tmp_path / "model.pt").write_bytes((MODELS / "nan.pt").read_bytes())
    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("*.pt", torch=True), tmp_path, lambda command, path: None)
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail.startswith(
        "the expected output model.pt did not pass its check `torch`: the tensor 0.weight has 2 values"
    )


def test_folder_is_no_model(tmp_path):
    (tmp_path / "model.pt").mkdir()
    (tmp_path / "model.pt" / "part").write_text("x")
    with pytest.raises(FailedError, match="`torch`: it is a folder, not a file"):
        check_expectation(ExpectedOutput("model.pt", torch=True), tmp_path, lambda command, path: None)


def test_validators_for_expectation():
    assert [key for key, _ in validators_for(ExpectedOutput("x"))] == []
    all_checks = ExpectedOutput("x", torch=True, json_bounds=(), archive=True)
    assert [key for key, _ in validators_for(all_checks)] == ["torch", "json", "archive"]
