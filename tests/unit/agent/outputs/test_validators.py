"""Judges look into output files without torch: what they hold against them, and that damage never passes."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.agent.outputs.inventory import check_expectation
from packtrain.agent.outputs.validators import archive, json_bounds, torch_file, validators_for
from packtrain.agent.outputs.validators.float_formats import FLOAT_FORMATS, find_non_finite
from packtrain.errors import FailedError
from packtrain.plan import Bound, ExpectedOutput
from tests.support.paths import TESTS_DIR

MODELS = TESTS_DIR / "golden" / "models"


def calm():
    pass


def said_of(judge, path):
    return judge(path, calm)


# Models


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_a_good_model(name):
    assert said_of(torch_file.validate, MODELS / f"{name}.pt") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "nan",
            "the tensor 0.weight has 2 values that are not finite (NaN or infinite), of 6, and so has 1 other tensor",
        ),
        ("nan-legacy", " not finite (NaN or infinite), of "),
        ("empty", "it holds no tensors: the model is empty"),
        (
            "whole-module",
            "it holds torch.nn.modules.container.Sequential, which torch.load(weights_only=True) refuses; "
            "save a state_dict",
        ),
    ],
)
def test_what_is_wrong_with_a_model(name, words):
    assert words in said_of(torch_file.validate, MODELS / f"{name}.pt")


def test_something_else_than_a_model(tmp_path):
    path = tmp_path / "model.pt"
    path.write_text("<html>404 page not found</html>")
    assert "it is no file of torch.save" in said_of(torch_file.validate, path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "hello")
    assert said_of(torch_file.validate, path) == "it is a zip, but not one of torch.save: it has no data.pkl"


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_a_model_that_was_cut_anywhere(tmp_path, name):
    whole, path = (MODELS / f"{name}.pt").read_bytes(), tmp_path / "model.pt"
    for length in {*range(1, len(whole) - 1, 13), len(whole) - 2}:
        path.write_bytes(whole[:length])
        assert said_of(torch_file.validate, path), f"cut to {length} bytes"


def test_a_flipped_bit_in_the_values_is_found(tmp_path):
    whole, path = bytearray((MODELS / "good.pt").read_bytes()), tmp_path / "model.pt"
    with zipfile.ZipFile(MODELS / "good.pt") as file:
        (record,) = (info for info in file.infolist() if info.filename.endswith("/data/0"))
        values = file.read(record)
    at = bytes(whole).index(values)
    for offset in range(len(values)):
        whole[at + offset] ^= 1
        path.write_bytes(whole)
        assert "it is damaged: Bad CRC-32" in said_of(torch_file.validate, path)
        whole[at + offset] ^= 1


@pytest.mark.parametrize("name", ["good", "good-legacy"])
def test_no_damage_leads_to_anything_but_a_sentence(tmp_path, name):
    whole, path = bytearray((MODELS / f"{name}.pt").read_bytes()), tmp_path / "model.pt"
    for at in range(0, len(whole), 3):
        before, whole[at] = whole[at], whole[at] ^ 0x55
        path.write_bytes(whole)
        assert isinstance(said_of(torch_file.validate, path), (str, type(None)))
        whole[at] = before


def test_a_missing_record_is_named(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(MODELS / "good.pt") as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            if not info.filename.endswith("/data/0"):
                new.writestr(info.filename, old.read(info))
    assert said_of(torch_file.validate, path) == (
        "the tensor net.0.weight has no values: the record good/data/0 is missing"
    )


def test_nothing_of_a_pickle_is_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    import pickle

    with zipfile.ZipFile(tmp_path / "model.pt", "w") as file:
        file.writestr("m/data.pkl", pickle.dumps(Evil(), 2))
    assert "weights_only=True) refuses" in said_of(torch_file.validate, tmp_path / "model.pt")
    assert not (tmp_path / "executed").exists()


def test_a_judge_heeds_the_time(tmp_path):
    def leave():
        raise FailedError("terminated", "time to go")

    with tarfile.open(tmp_path / "a.tar", "w") as file:
        file.add(MODELS, "models")
    for judge, path in ((torch_file.validate, MODELS / "good.pt"), (archive.validate, tmp_path / "a.tar")):
        with pytest.raises(FailedError, match="time to go"):
            judge(path, leave)


# Numbers


@pytest.mark.parametrize("name", FLOAT_FORMATS)
@pytest.mark.parametrize("big", [False, True])
def test_zeros_are_finite_and_set_bits_are_not(name, big):
    form = FLOAT_FORMATS[name]
    zeros, ones = bytes(form.value_bytes), b"\xff" * form.value_bytes
    if name.endswith("fnuz"):  # these have one NaN: minus zero
        ones = b"\x80"
    assert find_non_finite(zeros * 5 + ones + zeros * 3, form, big) == [5]


# JSON


def figures_of(tmp_path, found, *bounds):
    path = tmp_path / "metrics.json"
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    return said_of(json_bounds.make_validator(bounds), path)


@pytest.mark.parametrize(
    ("found", "bound"),
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
def test_numbers_that_are_right(tmp_path, found, bound):
    assert figures_of(tmp_path, found, bound) is None


@pytest.mark.parametrize(
    ("found", "bound", "words"),
    [
        ({"accuracy": 0.31}, Bound("accuracy", min=0.5), "accuracy is 0.31, at least 0.5 was expected"),
        ({"loss": 9}, Bound("loss", max=2.0), "loss is 9, at most 2 was expected"),
        ('{"loss": NaN}', Bound("loss"), "loss is nan, which is no finite number"),
        ('{"loss": -Infinity}', Bound("loss", max=1.0), "loss is -inf, which is no finite number"),
        ('{"loss": 1e999}', Bound("loss"), "loss is inf, which is no finite number"),
        ({"loss": "nan"}, Bound("loss"), 'loss is "nan", which is no number'),
        ({"loss": None}, Bound("loss"), "loss is null, which is no number"),
        ({"loss": True}, Bound("loss"), "loss is true, which is no number"),
        ({"loss": 1, "epoch": 2}, Bound("accuracy"), "it has no 'accuracy'; it has loss, epoch"),
        ({"test": 1}, Bound("test.loss"), "it has no 'test.loss'"),
        ([1], Bound("7"), "it has no '7'; it has 1 entries"),
        ("{}", Bound("loss"), "it has no 'loss'; it has no keys"),
        ("epoch 1, loss 2", Bound("loss"), "it is no JSON: Expecting value"),
        ("[" * 100_000, Bound("loss"), "it is no JSON: "),
    ],
)
def test_numbers_that_are_not(tmp_path, found, bound, words):
    assert words in figures_of(tmp_path, found, bound)


def test_without_bounds_it_is_json_that_counts(tmp_path):
    assert figures_of(tmp_path, "[]") is None
    assert figures_of(tmp_path, "[") is not None


# Archives


def packed(kind):
    """The bytes of an archive with a file, a link and a folder."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(MODELS / "good.pt", "sub/good.pt")
        return buffer.getvalue()
    if kind == "gz":
        return gzip.compress((MODELS / "good.pt").read_bytes(), mtime=0)
    with tarfile.open(fileobj=buffer, mode=f"w:{kind.partition('.')[2]}") as file:
        file.add(MODELS / "good.pt", "sub/good.pt")
        link = tarfile.TarInfo("sub/latest")
        link.type, link.linkname = tarfile.SYMTYPE, "good.pt"
        file.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip", "gz"])
def test_a_whole_archive_and_one_that_was_cut(tmp_path, kind):
    whole, path = packed(kind), tmp_path / f"results.{kind}"
    path.write_bytes(whole)
    assert said_of(archive.validate, path) is None
    end = whole.rindex(b"good.pt") + 512 if kind == "tar" else len(whole) - 1  # behind it a tar has zeros
    for length in {*range(1, end, 97), end}:
        path.write_bytes(whole[:length])
        assert said_of(archive.validate, path), f"cut to {length} bytes of {len(whole)}"


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "gz"])
def test_a_flipped_byte_in_an_archive(tmp_path, kind):
    whole, path = bytearray(packed(kind)), tmp_path / f"results.{kind}"
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    assert "cannot be read" in said_of(archive.validate, path)


def test_a_zip_by_another_name_and_what_is_none(tmp_path):
    (tmp_path / "arrays.npz").write_bytes(packed("zip"))
    assert said_of(archive.validate, tmp_path / "arrays.npz") is None
    (tmp_path / "a.tar").write_text("words")
    assert said_of(archive.validate, tmp_path / "a.tar") == "it is no archive that packtrain knows"
    (tmp_path / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(100))
    assert "a 7z archive, which cannot be checked" in said_of(archive.validate, tmp_path / "a.7z")


# All together


def test_the_failure_says_which_file_and_which_check(tmp_path):
    (tmp_path / "model.pt").write_bytes((MODELS / "nan.pt").read_bytes())
    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("*.pt", torch=True), tmp_path, lambda command, path: None)
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail.startswith(
        "the expected output model.pt did not pass its check `torch`: the tensor 0.weight has 2 values"
    )


def test_a_folder_is_no_model(tmp_path):
    (tmp_path / "model.pt").mkdir()
    (tmp_path / "model.pt" / "part").write_text("x")
    with pytest.raises(FailedError, match="`torch`: it is a folder, not a file"):
        check_expectation(ExpectedOutput("model.pt", torch=True), tmp_path, lambda command, path: None)


def test_only_the_judges_that_are_called_come():
    assert [key for key, _ in validators_for(ExpectedOutput("x"))] == []
    everything = ExpectedOutput("x", torch=True, json_bounds=(), archive=True)
    assert [key for key, _ in validators_for(everything)] == ["torch", "json", "archive"]
