"""What steps are told of inputs that they stream, and what they may keep of them."""

import os

import pytest

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.context import AttemptContext
from packtrain.agent.environments.apptainer import ApptainerEnvironment
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stages import hardware, reuse_inputs
from packtrain.agent.stages.fetch import fetch_inputs, unpack_inputs
from packtrain.agent.stages.stream_inputs import prepare_streams
from packtrain.agent.stop_request import StopRequest
from packtrain.events import Journal, Redactor
from packtrain.plan import (
    AttemptFolder,
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
from tests.support.stream_indexes import make_archive

GB = 1 << 30


@pytest.fixture
def source(tmp_path):
    index = make_archive(tmp_path, 20)
    archive = RemoteFile("data.tar", (Location((tmp_path / "data.tar").as_uri()),), index.archives[0].size)
    place = RemoteFile("data.tar.packtrain-index", (Location(index.path.as_uri()),), index.path.stat().st_size)
    return Input("data", "inputs/data", (archive,), unpack="never", mode="stream", index=place)


@pytest.fixture
def context(tmp_path):
    guards = []

    def make(*inputs, disk=None, depot=None, box="box", **more):
        sandbox = Sandbox(tmp_path / box, AttemptFolder(tmp_path / "home"))
        sandbox.create()
        redactor = Redactor([])
        guards.append(Guard.start())
        limits = Limits(disk_bytes=disk)
        job = Job(
            "0", (), Resources(), limits, (), inputs=inputs, checkpoint=CheckpointConfig("c"), retry_timeout_s=0.3
        )
        journal = Journal(sandbox.attempt_folder.journal, "r", "0", "agent-1", redactor)
        log, secrets = AgentLog(sandbox.attempt_folder.agent_log, redactor), Secrets(tmp_path / "secrets")
        processes = ProcessTable(guards[-1], 0.2)
        return AttemptContext(job, sandbox, journal, log, secrets, redactor, StopRequest(), processes, depot, **more)

    yield make
    for guard in guards:
        guard.quit()


def brought(context):
    fetch_inputs(context, {})
    unpack_inputs(context, {})
    return context


def told(context):
    """What the one input's program reads, while its steps run."""
    with prepare_streams(brought(context)) as streams:
        return StreamConfig.read(context.sandbox.streams / "data.packtrain-stream"), streams


def test_one_input_is_named_by_both_variables(context, source):
    here = context(source)
    found, streams = told(here)
    path = str(here.box.streams / "data.packtrain-stream")
    assert streams.variables == {"PACKTRAIN_STREAM": path, "PACKTRAIN_STREAM_DATA": path}
    assert found.archives == (source.items[0].sources,)
    assert (found.cache_dir, found.cache_limit_bytes, found.secrets_dir, streams.extra_mounts) == ("", 0, "", ())
    index, settings = open_job_stream(path)
    assert len(StreamingSamples(index, settings=settings)[7][0]) == 700


def test_of_several_each_has_its_own(context, source):
    other = Input("", "input", source.files, unpack="never", mode="stream", index=source.index)
    with prepare_streams(brought(context(source, other))) as streams:
        assert set(streams.variables) == {"PACKTRAIN_STREAM_DATA"}, "nobody knows which one PACKTRAIN_STREAM would mean"


def test_the_disk_of_the_plan_says_what_is_kept(context, source, tmp_path, monkeypatch):
    size = source.files[0].size
    assert told(context(source, disk=2 * GB))[0].cache_limit_bytes == size
    assert told(context(source, disk=GB))[0].cache_dir == "", "a gigabyte is for outputs"
    some = told(context(source, disk=GB + size))[0].cache_limit_bytes
    assert 0 <= some < size, "the index lies on the same disk"
    monkeypatch.setattr(hardware, "free_disk_bytes", lambda path: GB + 1000)
    assert told(context(source, disk=100 * GB))[0].cache_limit_bytes == 1000


def test_two_inputs_share_the_disk(context, source, monkeypatch):
    size = source.files[0].size
    monkeypatch.setattr(hardware, "free_disk_bytes", lambda path: GB + size + 1000)
    other = Input("other", "inputs/other", source.files, unpack="never", mode="stream", index=source.index)
    here = brought(context(source, other, disk=100 * GB))
    with prepare_streams(here):
        found = [
            StreamConfig.read(here.box.streams / f"{name}.packtrain-stream").cache_limit_bytes
            for name in ("data", "other")
        ]
    assert found == [size, 1000]


def test_in_a_depot_what_was_read_is_shared_and_stays(context, source, tmp_path):
    depot = DownloadCache(tmp_path / "depot")
    here = context(source, depot=depot, disk=GB)
    with prepare_streams(brought(here)) as streams:
        found = StreamConfig.read(here.sandbox.streams / "data.packtrain-stream")
        assert found.cache_limit_bytes == source.items[0].size
        assert [str(folder) for folder in streams.extra_mounts] == [found.cache_dir]
        (entry,) = [one for one in depot.entries() if one.name == "data.tar (streamed)"]
        assert (entry.bytes, entry.is_complete) == (source.items[0].size, True)
        assert entry.key not in [one.key for one in depot.clear()], "a job uses it"
    again, _ = told(context(source, depot=depot, box="other"))
    assert again.cache_dir == found.cache_dir
    assert entry.key in [one.key for one in depot.clear()]
    assert not os.path.exists(found.cache_dir)


def test_secrets_are_named_and_shown_to_containers(context, source, tmp_path):
    archive = RemoteFile("data.tar", (Location("https://h/data.tar", token=Secret("token")),), source.files[0].size)
    found, streams = told(context(Input("data", "inputs/data", (archive,), mode="stream", index=source.index)))
    assert found.secrets_dir == str(tmp_path / "secrets")
    assert streams.extra_mounts == (tmp_path / "secrets",)


def test_what_was_kept_goes_on_in_place(context, source, tmp_path):
    """The job left with exit code 85, and is started again here."""
    here = brought(context(source, disk=2 * GB, reuse_folder=tmp_path / "kept"))
    reuse_inputs.record_inputs_fingerprint(here)
    with prepare_streams(here) as streams:
        (here.sandbox.streams / "kept").mkdir()
        (here.box.streams / "kept" / "data").write_bytes(b"what was read")
    reuse_inputs.save_inputs(here)
    assert not here.box.streams.exists()
    next_one = context(source, disk=2 * GB, keep=tmp_path / "kept", box="next")
    assert reuse_inputs.restore_inputs(next_one, {})
    with prepare_streams(next_one) as streams:
        found = StreamConfig.read(next_one.box.streams / "data.packtrain-stream")
        assert found.index_path.startswith(str(next_one.box.root))
        assert found.cache_limit_bytes == source.items[0].size
        assert (next_one.box.streams / "kept" / "data").read_bytes() == b"what was read"
    assert streams.variables["PACKTRAIN_STREAM"].startswith(str(next_one.box.root))


def test_a_container_sees_what_lies_outside_of_the_sandbox(context, tmp_path):
    around = ApptainerEnvironment(Container("image.sif"), context().sandbox, 0, None, str, (tmp_path / "secrets",))
    flags = list(around._flags(tmp_path))
    assert f"type=bind,source={tmp_path / 'secrets'},destination={tmp_path / 'secrets'}" in flags
