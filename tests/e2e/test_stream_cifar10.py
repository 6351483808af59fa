"""The real CIFAR-10 as class tars in a tar, streamed through an XRootD cache and its origin while the cache is stopped.

Every sample is seen once, and the weights are those of a training from extracted files in the same order, bit by bit.
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
from packtrain.torch.streaming import make_streaming_loader
from testbed.data import make_small_cifar10
from testbed.datasets import cifar10
from testbed.xrootd import XRootDCache, XRootDOrigin

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
BATCH, WORKERS, EACH, SPAN = 20, 2, 40, 16_000


def _images(folder):
    """Name and pixels of the first images of each class."""
    found = {name: [] for name in cifar10.CLASS_NAMES}
    for batch in cifar10.read_batches(make_small_cifar10(folder)):
        for row, label in enumerate(batch[b"labels"]):
            found[cifar10.CLASS_NAMES[label]].append(bytes(batch[b"data"][row : row + 1].data))
    return {name: images[:EACH] for name, images in found.items()}


def _write_nested(path, images):
    with tarfile.open(path, "w") as outer:
        for name, some in sorted(images.items()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number, pixels in enumerate(some):
                    _add(tar, f"{name}_{number}.bin", pixels)
            _add(outer, f"{name}.tar", inner.getvalue())


def _add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _decode(data, label):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8), label


class _Training:
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
        return torch.cat([part.flatten() for part in self.model.state_dict().values()])


def _from_files(images, index, data):
    """The same order, from what lies extracted."""
    dealt = data._cursor.dealt()
    streams = [dealt.stream(0, worker).numbers() for worker in range(WORKERS)]
    names, training = list(index.names()), _Training()
    for number in range(dealt.batches):
        chosen = list(islice(streams[number % WORKERS], BATCH))
        pixels = [images[names[sample]] for sample in chosen]
        batch = [_decode(some, index.classes[sample]) for some, sample in zip(pixels, chosen, strict=True)]
        training.step(*torch.utils.data.default_collate(batch))
    return training


def test_streamed_while_the_cache_is_stopped_and_restarted(tmp_path):
    torch.set_num_threads(1)
    images = _images(tmp_path)
    with XRootDOrigin(tmp_path / "origin") as origin, XRootDCache(tmp_path / "cache", origin) as cache:
        _write_nested(origin.object_dir / "cifar10.tar", images)
        urls = [f"{server.url}/data/cifar10.tar" for server in (cache, origin)]
        index = build_index(IndexRequest([[Location(urls[1])]], str), tmp_path / "index")

        def new_loader():
            return make_streaming_loader(
                index,
                urls,
                batch_size=BATCH,
                num_workers=WORKERS,
                decode_fn=_decode,
                read_bytes=SPAN,
                prefetch_bytes=4 * SPAN,
            )

        data, streamed, seen = new_loader(), _Training(), []
        for number, (pixels, labels) in enumerate(data):
            streamed.step(pixels, labels)
            seen += [bytes(some.numpy()) for some in pixels]
            if number == 3:
                cache.pause()
            if number == 12:
                cache.resume()
        cache.resume()
        everything = [pixels for some in images.values() for pixels in some]
        assert sorted(seen) == sorted(everything)
        assert data.epoch == 2
        assert any(file.is_file() for file in (tmp_path / "cache/store").rglob("*"))  # the cache was asked
        by_name = {f"{name}/{name}_{n}.bin": some[n] for name, some in images.items() for n in range(EACH)}
        expected = _from_files(by_name, index, new_loader())
        assert torch.equal(streamed.weights(), expected.weights())
