"""Packages come from the cache, mirrors, the store and the channel, in this order, and each is verified."""

from __future__ import annotations

import shutil

import pytest

from packtrain.errors import FailedError
from packtrain.pixi.package_sources import PackageFetcher, package_locations
from packtrain.plan import Location, PixiEnvironment, PixiMirror
from packtrain.transfer.cache import DownloadCache
from testbed.http_server import HttpServer, ResponseFault
from testbed.pixi.packages import CondaPackage
from tests.support.pixi_environments import lock_package


@pytest.fixture
def servers(tmp_path):
    """A mirror, a store and a channel, as folders and servers by name."""
    found = {}
    for name in ("mirror", "store", "channel"):
        (tmp_path / name).mkdir()
        found[name] = HttpServer(tmp_path / name).__enter__()
    yield found
    for server in found.values():
        server.__exit__()


@pytest.fixture
def package(tmp_path, servers):
    path = CondaPackage("a").add("share/a", "content").write(tmp_path / "channel")
    return lock_package(path, f"{servers['channel'].url}/linux-64/{path.name}")


class Fetching:
    def __init__(self, folder, servers, retry_timeout_s=0.2):
        self.folder, self.servers, self.retry_timeout_s = folder, servers, retry_timeout_s
        self.downloads = folder / "downloads"
        self.downloads.mkdir()

    def environment(self, mirrors=True):
        mirror = PixiMirror(self.servers["channel"].url, Location(self.servers["mirror"].url))
        return PixiEnvironment(
            "test",
            "linux-64",
            "0",
            Location((self.folder / "env").as_uri()),
            mirrors=(mirror,) if mirrors else (),
            store=Location(self.servers["store"].url) if mirrors else None,
        )

    def fetch(self, package, cache=None, mirrors=True):
        fetcher = PackageFetcher(
            self.environment(mirrors),
            self.downloads,
            cache,
            str,
            retry_timeout_s=self.retry_timeout_s,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
        with fetcher.open_package(package) as path:
            content = path.read_bytes()
        assert not list(self.downloads.iterdir())
        return content, fetcher.downloads

    def requested(self):
        return [name for name, server in self.servers.items() if server.requests]


@pytest.fixture
def fetching(tmp_path, servers):
    return Fetching(tmp_path, servers)


def add_to_mirror(tmp_path, package):
    (tmp_path / "mirror/linux-64").mkdir()
    shutil.copy(tmp_path / "channel/linux-64" / package.file_name, tmp_path / "mirror/linux-64")


def add_to_store(tmp_path, package):
    shutil.copy(tmp_path / "channel/linux-64" / package.file_name, tmp_path / "store" / package.sha256)


def test_order(tmp_path, fetching, package, servers):
    locations = [location.url for location in package_locations(fetching.environment(), package)]
    assert locations == [
        f"{servers['mirror'].url}/linux-64/{package.file_name}",
        f"{servers['store'].url}/{package.sha256}",
        package.url,
    ]


def test_mirror_first(tmp_path, fetching, package):
    add_to_mirror(tmp_path, package)
    content, downloads = fetching.fetch(package)
    assert (len(content), downloads.bytes, downloads.files) == (package.size, package.size, 1)
    assert fetching.requested() == ["mirror"]


def test_store_if_the_mirror_lacks_it(tmp_path, fetching, package):
    add_to_store(tmp_path, package)
    fetching.fetch(package)
    assert fetching.requested() == ["mirror", "store"]


def test_channel_at_last(fetching, package):
    assert fetching.fetch(package)[1].source == package.url
    assert fetching.requested() == ["mirror", "store", "channel"]


def test_cache_before_all(tmp_path, fetching, package, servers):
    cache = DownloadCache(tmp_path / "cache")
    fetching.fetch(package, cache)
    for server in servers.values():
        server.requests.clear()
    content, downloads = fetching.fetch(package, cache)
    assert len(content) == package.size
    assert downloads.source.startswith("the download cache")
    assert fetching.requested() == []


def test_cache_needs_no_size(tmp_path, fetching, package, servers):
    """A lock file has no sizes of wheels."""
    from dataclasses import replace

    package, cache = replace(package, size=None), DownloadCache(tmp_path / "cache")
    fetching.fetch(package, cache, mirrors=False)
    servers["channel"].requests.clear()
    fetching.fetch(package, cache, mirrors=False)
    assert fetching.requested() == []


@pytest.mark.parametrize("fault", ["digest", "truncated", "down", "busy"])
def test_broken_mirror(tmp_path, fetching, package, servers, fault):
    """The next source is used."""
    add_to_mirror(tmp_path, package)
    path = tmp_path / "mirror/linux-64" / package.file_name
    if fault == "digest":
        path.write_bytes(bytes(package.size))
    elif fault == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    elif fault == "busy":
        servers["mirror"].faults = [ResponseFault(status=503)] * 1000
    else:
        servers["mirror"].__exit__()
    content, _ = fetching.fetch(package)
    assert len(content) == package.size
    if fault == "down":
        servers["mirror"].__enter__ = None


def test_busy_mirror_recovers(tmp_path, fetching, package, servers):
    """A moment of overload does not send all jobs to the public channel."""
    fetching.retry_timeout_s = 30.0
    add_to_mirror(tmp_path, package)
    servers["mirror"].faults = [ResponseFault(status=503)] * 3
    fetching.fetch(package)
    assert fetching.requested() == ["mirror"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ResponseFault(corrupt_offset=50), "digest_mismatch"),
        (ResponseFault(truncate_to_bytes=50), "truncated"),
        (ResponseFault(status=404), "object_missing"),
        (ResponseFault(status=503), "service_unavailable"),
    ],
)
@pytest.mark.parametrize("with_cache", [False, True])
def test_broken_channel(tmp_path, fetching, package, servers, fault, kind, with_cache):
    servers["channel"].faults = [fault] * 1000
    cache = DownloadCache(tmp_path / "cache") if with_cache else None
    with pytest.raises(FailedError) as error:
        fetching.fetch(package, cache, mirrors=False)
    assert error.value.kind == kind
    servers["channel"].faults.clear()
    assert len(fetching.fetch(package, cache, mirrors=False)[0]) == package.size


def test_channel_down(fetching, package, servers):
    servers["channel"].__exit__()
    with pytest.raises(FailedError) as error:
        fetching.fetch(package, mirrors=False)
    assert error.value.kind in ("network_unreachable", "service_unavailable")


def test_package_of_the_environments_folder(tmp_path, fetching, package):
    """A local wheel has no URL; it is sent with the job."""
    from dataclasses import replace

    (tmp_path / "env").mkdir()
    shutil.copy(tmp_path / "channel/linux-64" / package.file_name, tmp_path / "env")
    content, _ = fetching.fetch(replace(package, url=""))
    assert len(content) == package.size
    assert fetching.requested() == []
