"""Stream real CIFAR-10 from a tar of class tars through an XRootD cache that is paused, and from its origin.

Every sample comes once, and the weights equal those of a training on extracted files in the same order, bit by bit.
"""

from __future__ import annotations

import io
import tarfile
from itertools import islice

import pytest
import torch
from torch import nn

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.torch import StreamingLoader
from testbed.data import make_small_cifar10
from testbed.datasets import cifar10
from testbed.xrootd import XRootDCache, XRootDOrigin
from tests.support.nested_archives import add_member

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
BATCH_SIZE, NUM_WORKERS, PER_CLASS, READ_BYTES = 20, 2, 40, 16_000


def load_images(folder):
    """Return the pixels of the first images of each class."""
    images = {name: [] for name in cifar10.CLASS_NAMES}
    for batch in cifar10.read_batches(make_small_cifar10(folder)):
        for row, label in enumerate(batch[b"labels"]):
            images[cifar10.CLASS_NAMES[label]].append(bytes(batch[b"data"][row : row + 1].data))
    return {name: pixels[:PER_CLASS] for name, pixels in images.items()}


def write_nested_tar(path, images):
    with tarfile.open(path, "w") as outer:
        for name, class_images in sorted(images.items()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number, pixels in enumerate(class_images):
                    add_member(tar, f"{name}_{number}.bin", pixels)
            add_member(outer, f"{name}.tar", inner.getvalue())


def decode(data, label):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8), label


class Training:
    """A small network with a fixed seed."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3072, 8), nn.ReLU(), nn.Linear(8, 10))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, pixels, labels):
        loss = nn.functional.cross_entropy(self.model(pixels.float() / 255), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def weights(self):
        return torch.cat([tensor.flatten() for tensor in self.model.state_dict().values()])


def train_on_files(pixels_by_name, index, data):
    """Train on extracted files in the order of a loader."""
    partition = data._cursor.partition()
    workers = [partition.worker_order(0, worker).sample_numbers() for worker in range(NUM_WORKERS)]
    names, training = list(index.names()), Training()
    for batch_number in range(partition.n_batches):
        numbers = islice(workers[batch_number % NUM_WORKERS], BATCH_SIZE)
        batch = [decode(pixels_by_name[names[number]], index.labels[number]) for number in numbers]
        training.step(*torch.utils.data.default_collate(batch))
    return training


def test_stream_with_a_paused_cache(tmp_path):
    torch.set_num_threads(1)
    images = load_images(tmp_path)
    with XRootDOrigin(tmp_path / "origin") as origin, XRootDCache(tmp_path / "cache", origin) as cache:
        write_nested_tar(origin.object_dir / "cifar10.tar", images)
        urls = [f"{server.url}/data/cifar10.tar" for server in (cache, origin)]
        index = build_index(IndexRequest([[Location(urls[1])]], str), tmp_path / "index")

        def make_loader():
            return StreamingLoader(
                index,
                urls,
                batch_size=BATCH_SIZE,
                num_workers=NUM_WORKERS,
                decode_fn=decode,
                read_bytes=READ_BYTES,
                prefetch_bytes=4 * READ_BYTES,
            )

        data, streamed, seen = make_loader(), Training(), []
        for number, (pixels, labels) in enumerate(data):
            streamed.step(pixels, labels)
            seen += [bytes(image.numpy()) for image in pixels]
            if number == 3:
                cache.pause()
            if number == 12:
                cache.resume()
        cache.resume()
        assert sorted(seen) == sorted(pixels for class_images in images.values() for pixels in class_images)
        assert data.epoch == 1
        assert any(file.is_file() for file in (tmp_path / "cache/store").rglob("*"))  # the cache was used
        pixels_by_name = {
            f"{name}/{name}_{number}.bin": class_images[number]
            for name, class_images in images.items()
            for number in range(PER_CLASS)
        }
        expected = train_on_files(pixels_by_name, index, make_loader())
        assert torch.equal(streamed.weights(), expected.weights())
