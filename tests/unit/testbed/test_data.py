"""The data of the demo and the tests is CIFAR-10 indeed, in its published layout."""

from __future__ import annotations

import pickle
import tarfile

import numpy
import pytest

from testbed import data

pytestmark = pytest.mark.slow


def batches(archive, encoding):
    with tarfile.open(archive) as tar:
        return {
            member.name.split("/")[1]: pickle.load(tar.extractfile(member), encoding=encoding)
            for member in tar
            if member.isfile()
        }


def test_the_images_are_those_of_cifar10():
    found = batches(data.cached_cifar10(), "bytes")
    training = [found[f"data_batch_{n}"] for n in range(1, 6)]
    assert all(batch[b"data"].shape == (10_000, 3072) for batch in [*training, found["test_batch"]])
    assert list(numpy.bincount(numpy.concatenate([batch[b"labels"] for batch in training]))) == [5000] * 10
    # Known of the published set: the mean of each colour, and its first test images (cat, ship, ship, plane, frog).
    sums = sum(batch[b"data"].reshape(-1, 3, 1024).sum(axis=(0, 2), dtype="int64") for batch in training)
    assert sums / (50_000 * 1024 * 255) == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert found["test_batch"][b"labels"][:5] == [3, 8, 8, 0, 6]


def test_the_small_archive_has_the_genuine_layout(tmp_path):
    archive = data.make_small_cifar10(tmp_path, per_batch=7)
    found, whole = batches(archive, "bytes"), batches(data.cached_cifar10(), "bytes")
    assert set(found) == set(whole) == {*data.CIFAR10_BATCHES, "batches.meta"}
    for name in data.CIFAR10_BATCHES:
        assert set(found[name]) == {b"data", b"labels", b"batch_label", b"filenames"}
        assert numpy.array_equal(found[name][b"data"], whole[name][b"data"][:7])
        assert found[name][b"labels"] == whole[name][b"labels"][:7]
    assert found["batches.meta"][b"num_cases_per_batch"] == 7


def test_older_readers_get_text_keys(tmp_path):
    found = batches(data.make_small_cifar10(tmp_path, per_batch=3), "latin1")
    assert found["batches.meta"]["label_names"][3] == "cat"
    assert found["test_batch"]["data"].shape == (3, 3072)


def test_the_same_archive_each_time(tmp_path):
    made = [data.make_small_cifar10(tmp_path / name, per_batch=5).read_bytes() for name in ("a", "b")]
    assert made[0] == made[1]
