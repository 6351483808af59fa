"""The CIFAR-10 of demo and tests has the published images and layout."""

from __future__ import annotations

import pickle
import tarfile

import numpy
import pytest

from testbed import data

pytestmark = pytest.mark.slow


def read_batches(archive, encoding):
    with tarfile.open(archive) as tar:
        return {
            member.name.split("/")[1]: pickle.load(tar.extractfile(member), encoding=encoding)
            for member in tar
            if member.isfile()
        }


def test_published_images():
    batches = read_batches(data.cached_cifar10(), "bytes")
    training = [batches[f"data_batch_{n}"] for n in range(1, 6)]
    assert all(batch[b"data"].shape == (10_000, 3072) for batch in [*training, batches["test_batch"]])
    assert list(numpy.bincount(numpy.concatenate([batch[b"labels"] for batch in training]))) == [5000] * 10
    # Known properties: the mean of each colour, and the first test images (cat, ship, ship, plane, frog).
    sums = sum(batch[b"data"].reshape(-1, 3, 1024).sum(axis=(0, 2), dtype="int64") for batch in training)
    assert sums / (50_000 * 1024 * 255) == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert batches["test_batch"][b"labels"][:5] == [3, 8, 8, 0, 6]


def test_small_archive_layout(tmp_path):
    archive = data.make_small_cifar10(tmp_path, per_batch=7)
    batches, full = read_batches(archive, "bytes"), read_batches(data.cached_cifar10(), "bytes")
    assert set(batches) == set(full) == {*data.CIFAR10_BATCHES, "batches.meta"}
    for name in data.CIFAR10_BATCHES:
        assert set(batches[name]) == {b"data", b"labels", b"batch_label", b"filenames"}
        assert numpy.array_equal(batches[name][b"data"], full[name][b"data"][:7])
        assert batches[name][b"labels"] == full[name][b"labels"][:7]
    assert batches["batches.meta"][b"num_cases_per_batch"] == 7


def test_latin1_encoding(tmp_path):
    batches = read_batches(data.make_small_cifar10(tmp_path, per_batch=3), "latin1")
    assert batches["batches.meta"]["label_names"][3] == "cat"
    assert batches["test_batch"]["data"].shape == (3, 3072)


def test_archive_is_reproducible(tmp_path):
    archives = [data.make_small_cifar10(tmp_path / name, per_batch=5).read_bytes() for name in ("a", "b")]
    assert archives[0] == archives[1]
