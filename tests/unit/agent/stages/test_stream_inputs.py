"""Tests of the configuration files for streamed inputs, and of what programs may cache of them."""

import os

import pytest

from packtrain.agent.environments.apptainer import ApptainerEnvironment
from packtrain.agent.stages import reuse_inputs, stream_inputs
from packtrain.agent.stages.fetch import fetch_inputs
from packtrain.agent.stages.stream_inputs import prepare_streams
from packtrain.agent.stages.unpack import unpack_inputs
from packtrain.plan import (
    CheckpointConfig,
    Container,
    Input,
    Job,
    Limits,
    Location,
    RemoteFile,
    Resources,
    Secret,
)
from packtrain.plan.stream_config import StreamConfig
from packtrain.stream.job_config import open_job_stream
from packtrain.stream.samples import StreamingSamples
from packtrain.transfer.cache import DownloadCache
from tests.support.attempt_contexts import attempt_contexts
from tests.support.stream_indexes import make_archive

GB = 1 << 30


@pytest.fixture
def job_input(tmp_path):
    index = make_archive(tmp_path, 20)
    archive = RemoteFile("data.tar", (Location((tmp_path / "data.tar").as_uri()),), index.archives[0].size)
    index_file = RemoteFile("data.tar.packtrain-index", (Location(index.path.as_uri()),), index.path.stat().st_size)
    return Input("data", "inputs/data", (archive,), unpack="never", mode="stream", index=index_file)


@pytest.fixture
def make_context(tmp_path):
    def make_context(*inputs, disk_bytes=None, cache=None, sandbox_name="sandbox", **more):
        limits, checkpoint = Limits(disk_bytes=disk_bytes), CheckpointConfig("c")
        job = Job("0", (), Resources(), limits, (), inputs=inputs, checkpoint=checkpoint, retry_timeout_s=0.3)
        return make(job, root=sandbox_name, download_cache=cache, **more)

    with attempt_contexts(tmp_path) as make:
        yield make_context


def fetch_and_unpack(context):
    fetch_inputs(context, {})
    unpack_inputs(context, {})
    return context


def read_config(context):
    """Return the configuration that the program reads while the steps run."""
    with prepare_streams(fetch_and_unpack(context)) as streams:
        return StreamConfig.read(context.sandbox.streams / "data.packtrain-stream"), streams


def test_single_input_has_both_variables(make_context, job_input):
    context = make_context(job_input)
    config, streams = read_config(context)
    path = str(context.sandbox.streams / "data.packtrain-stream")
    assert streams.variables == {"PACKTRAIN_STREAM": path, "PACKTRAIN_STREAM_DATA": path}
    assert config.archives == (job_input.files[0].locations,)
    assert (config.cache_dir, config.cache_limit_bytes, config.secrets_dir, streams.extra_mounts) == ("", 0, "", ())
    index, settings = open_job_stream(path)
    assert len(StreamingSamples(index, settings=settings)[7][0]) == 700


def test_several_inputs_have_own_variables(make_context, job_input):
    other = Input("", "input", job_input.files, unpack="never", mode="stream", index=job_input.index)
    with prepare_streams(fetch_and_unpack(make_context(job_input, other))) as streams:
        assert set(streams.variables) == {"PACKTRAIN_STREAM_DATA"}, "PACKTRAIN_STREAM would be ambiguous"


def test_cache_limit_follows_disk_limit(make_context, job_input, tmp_path, monkeypatch):
    size = job_input.files[0].size
    assert read_config(make_context(job_input, disk_bytes=2 * GB))[0].cache_limit_bytes == size
    assert read_config(make_context(job_input, disk_bytes=GB))[0].cache_dir == "", "a gigabyte is reserved for outputs"
    limit_bytes = read_config(make_context(job_input, disk_bytes=GB + size))[0].cache_limit_bytes
    assert 0 <= limit_bytes < size, "the index is on the same disk"
    monkeypatch.setattr(stream_inputs, "free_bytes", lambda path: GB + 1000)
    assert read_config(make_context(job_input, disk_bytes=100 * GB))[0].cache_limit_bytes == 1000


def test_two_inputs_share_the_disk(make_context, job_input, monkeypatch):
    size = job_input.files[0].size
    monkeypatch.setattr(stream_inputs, "free_bytes", lambda path: GB + size + 1000)
    other = Input("other", "inputs/other", job_input.files, unpack="never", mode="stream", index=job_input.index)
    context = fetch_and_unpack(make_context(job_input, other, disk_bytes=100 * GB))
    with prepare_streams(context):
        limits = [
            StreamConfig.read(context.sandbox.streams / f"{name}.packtrain-stream").cache_limit_bytes
            for name in ("data", "other")
        ]
    assert limits == [size, 1000]


def test_download_cache_is_shared(make_context, job_input, tmp_path):
    cache = DownloadCache(tmp_path / "cache")
    context = make_context(job_input, cache=cache, disk_bytes=GB)
    with prepare_streams(fetch_and_unpack(context)) as streams:
        config = StreamConfig.read(context.sandbox.streams / "data.packtrain-stream")
        assert config.cache_limit_bytes == job_input.files[0].size
        assert [str(folder) for folder in streams.extra_mounts] == [config.cache_dir]
        (entry,) = [e for e in cache.entries() if e.name == "data.tar (streamed)"]
        assert (entry.bytes, entry.is_complete) == (job_input.files[0].size, True)
        assert entry.key not in [e.key for e in cache.clear()], "a job uses it"
    second_config, _ = read_config(make_context(job_input, cache=cache, sandbox_name="other"))
    assert second_config.cache_dir == config.cache_dir
    assert entry.key in [e.key for e in cache.clear()]
    assert not os.path.exists(config.cache_dir)


def test_secrets_folder_is_mounted(make_context, job_input, tmp_path):
    archive = RemoteFile("data.tar", (Location("https://h/data.tar", token=Secret("token")),), job_input.files[0].size)
    config, streams = read_config(
        make_context(Input("data", "inputs/data", (archive,), mode="stream", index=job_input.index))
    )
    assert config.secrets_dir == str(tmp_path / "secrets")
    assert streams.extra_mounts == (tmp_path / "secrets",)


def test_cached_samples_are_reused_in_place(make_context, job_input, tmp_path):
    """The job exited with code 85 and is started again on the same machine."""
    context = fetch_and_unpack(make_context(job_input, disk_bytes=2 * GB, reuse_folder=tmp_path / "reuse"))
    reuse_inputs.record_inputs_fingerprint(context)
    with prepare_streams(context) as streams:
        (context.sandbox.streams / "cache").mkdir()
        (context.sandbox.streams / "cache" / "data").write_bytes(b"cached samples")
    reuse_inputs.save_inputs(context)
    assert not context.sandbox.streams.exists()
    next_context = make_context(job_input, disk_bytes=2 * GB, reuse_folder=tmp_path / "reuse", sandbox_name="next")
    assert reuse_inputs.restore_inputs(next_context, {})
    with prepare_streams(next_context) as streams:
        config = StreamConfig.read(next_context.sandbox.streams / "data.packtrain-stream")
        assert config.index_path.startswith(str(next_context.sandbox.root))
        assert config.cache_limit_bytes == job_input.files[0].size
        assert (next_context.sandbox.streams / "cache" / "data").read_bytes() == b"cached samples"
    assert streams.variables["PACKTRAIN_STREAM"].startswith(str(next_context.sandbox.root))


def test_extra_folders_are_mounted(make_context, tmp_path):
    environment = ApptainerEnvironment(
        Container("image.sif"), make_context().sandbox, 0, None, str, (tmp_path / "secrets",)
    )
    flags = list(environment._flags(tmp_path))
    assert f"type=bind,source={tmp_path / 'secrets'},destination={tmp_path / 'secrets'}" in flags
