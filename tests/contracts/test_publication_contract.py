"""Publication on every kind of destination, with real servers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Job, Limits, Location, ManifestEntry, Output, OutputManifest, Resources, RunFolder
from packtrain.plan.output_manifest import MANIFEST_NAME, SYNC_LIST_NAME, staged_name, staging_folder
from packtrain.publication.destination import JobOutputs
from packtrain.publication.intermediate import CheckpointId, ShownOutputs, show_checkpoint, show_synced_files
from packtrain.publication.publish import publish_outputs, read_publication
from packtrain.transfer.integrity.digests import sha256_file
from packtrain.transfer.upload import upload_file, upload_folder
from testbed.http_server import HttpServer, ResponseFault
from tests.contracts.conftest import file_case, pelican_case, resolve_plain, s3_case

RUN, JOB = "run-1", "0"
ACCEPTED = {"model.pt": b"weights of B" * 1000, "logs/a b/ü#1.txt": b"log of B", "empty": b""}
_SLOW_CASES = [
    pytest.param(case, marks=[pytest.mark.slow, pytest.mark.xdist_group(case.__name__)])
    for case in (s3_case, pelican_case)
]


class Workbench:
    """One job with its destination, and what attempts of it do."""

    def __init__(self, folder, output, backend=None):
        self.folder, self.output, self.backend = folder, output, backend
        job = Job(JOB, (), Resources(), Limits(), (), output=output, retry_timeout_s=20.0)
        self.outputs = JobOutputs(RUN, job, RunFolder(folder / "run"), resolve_plain, lambda: None)
        self.outputs.folder.job_folder(JOB).mkdir(parents=True)

    def make_manifest(self, emitter, files):
        entries = [ManifestEntry(name, len(data), sha256_of(self.folder, data)) for name, data in files.items()]
        return OutputManifest(RUN, JOB, emitter, tuple(entries))

    def stage(self, emitter, files, is_complete=True):
        """Upload files as an attempt does."""
        source, options = self.folder / f"output-{emitter}", {"check_cancelled": lambda: None, "retry_timeout_s": 60.0}
        write_files(source, files)
        prefix = staged_name(RUN, JOB, emitter, "")
        progress = {"on_progress": lambda done, total: None}
        upload_folder(source, self.output, resolve_plain, prefix=prefix, **progress, **options)
        if is_complete:
            self.put(self.make_manifest(emitter, files).name, self.make_manifest(emitter, files).to_text())

    def put(self, name, text):
        (self.folder / "text").write_text(text)
        upload_file(self.folder / "text", self.output, name, resolve_plain, retry_timeout_s=60.0)

    def publish(self, emitter="B"):
        return publish_outputs(self.outputs, "0-2", emitter)

    def read_published(self):
        entries = self.backend.store.list(self.output.location)
        return {e.name: self.read(e.location) for e in entries if not e.name.startswith(".packtrain/")}

    def read(self, location):
        stream = self.backend.store.open(location)
        try:
            return b"".join(iter(lambda: stream.read(1 << 16), b""))
        finally:
            stream.close()

    def list_staged(self):
        folder = replace(self.output.location, url=f"{self.output.location.url}/.packtrain/outputs")
        return [entry.name for entry in self.backend.store.list(folder)]


def sha256_of(folder, data):
    (folder / "data").write_bytes(data)
    return sha256_file(folder / "data")


def write_files(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.fixture(params=[file_case, *_SLOW_CASES], ids=lambda make: make.__name__)
def bench(request, tmp_path):
    backend = request.param(request, f"published-{tmp_path.name}")
    return Workbench(tmp_path, Output(backend.make_location("user")), backend)


def test_only_the_accepted_outputs_appear(bench):
    bench.stage("A", {"model.pt": b"of A", "only A": b"1"}, is_complete=False)
    bench.stage("B", ACCEPTED)
    assert bench.read_published() == {}, "nothing appears before the acceptance"
    publication = bench.publish()
    assert (publication.files, publication.bytes) == (3, sum(map(len, ACCEPTED.values())))
    assert bench.read_published() == ACCEPTED
    assert bench.list_staged() == []
    bench.stage("A", {"model.pt": b"of A", "only A": b"1", "later": b"2"})  # it continues late
    assert bench.read_published() == ACCEPTED
    assert bench.publish() == publication, "it is repeatable"
    assert bench.read_published() == ACCEPTED


def test_stale_files_of_the_attempt_do_not_appear(bench):
    """Continuous sync uploaded a file that the program removed later."""
    bench.stage("B", {"removed": b"x", **ACCEPTED}, is_complete=False)
    bench.put(f"{staging_folder(RUN, JOB, 'B')}/{MANIFEST_NAME}", bench.make_manifest("B", ACCEPTED).to_text())
    bench.publish()
    assert bench.read_published() == ACCEPTED


def test_truncated_object_is_not_published(bench):
    bench.stage("B", {**ACCEPTED, "model.pt": b"half"}, is_complete=False)
    bench.put(f"{staging_folder(RUN, JOB, 'B')}/{MANIFEST_NAME}", bench.make_manifest("B", ACCEPTED).to_text())
    with pytest.raises(FailedError, match=r"has 4 bytes instead of 12000; they are kept in .*resume run-1") as caught:
        bench.publish()
    assert caught.value.kind == "upload_failed"
    assert "model.pt" not in bench.read_published()
    assert read_publication(bench.outputs.folder, JOB) is None


def test_missing_outputs(bench):
    with pytest.raises(FailedError, match=r"the accepted outputs are gone: .*; run the workflow again"):
        bench.publish()


def test_intermediate_outputs_are_replaced(bench):
    if bench.backend.immutable:
        return  # objects of a federation never change, so nothing intermediate is shown there
    early = {"log.txt": b"epoch 1", "model.pt": b"early", "tmp.bin": b"t"}
    bench.stage("A", early, is_complete=False)
    bench.put(f"{staging_folder(RUN, JOB, 'A')}/{SYNC_LIST_NAME}", bench.make_manifest("A", early).to_text())
    shown = ShownOutputs()
    show_synced_files(bench.outputs, "A", shown)
    assert bench.read_published() == early
    bench.stage("A", {"log.txt": b"epoch 22"}, is_complete=False)
    show_synced_files(bench.outputs, "A", shown)
    assert bench.read_published() == early, "it is not listed yet"
    later = {**early, "log.txt": b"epoch 22"}
    bench.put(f"{staging_folder(RUN, JOB, 'A')}/{SYNC_LIST_NAME}", bench.make_manifest("A", later).to_text())
    show_synced_files(bench.outputs, "A", shown)
    assert bench.read_published() == later
    prefix = f".packtrain/checkpoints/{RUN}/{JOB}/A/7"
    bench.put(f"{prefix}/ckpt/c.pt", "weights of step 9")
    bench.put(f"{prefix}/record.json", json.dumps({"files": [{"name": "ckpt/c.pt"}]}))
    show_checkpoint(bench.outputs, CheckpointId(9, "A", 7), shown)
    assert bench.read_published() == {**later, "ckpt/c.pt": b"weights of step 9"}
    bench.stage("B", ACCEPTED)
    bench.publish()
    assert bench.read_published() == ACCEPTED, "what was shown and is not accepted is gone"


@pytest.mark.parametrize("delete_sync", [False, True])
def test_delete_sync(bench, delete_sync):
    if bench.backend.immutable:
        return
    bench.outputs = replace(
        bench.outputs, job=replace(bench.outputs.job, output=replace(bench.output, delete_sync=delete_sync))
    )
    bench.put("of an earlier run", "old")
    bench.put(".packtrain/agent-0/partial", "of a failed attempt")
    bench.stage("B", ACCEPTED)
    assert "of an earlier run" in bench.read_published()
    bench.publish()
    assert ("of an earlier run" in bench.read_published()) == (not delete_sync)
    kept = replace(bench.output.location, url=f"{bench.output.location.url}/.packtrain/agent-0/partial")
    assert bench.read(kept) == b"of a failed attempt"


# A file system: what an earlier supervisor has renamed


@pytest.fixture
def file_bench(tmp_path):
    return Workbench(tmp_path, Output(Location((tmp_path / "user").as_uri())))


def rename_first(bench):
    target = bench.folder / "user"
    (target / staged_name(RUN, JOB, "B", "model.pt")).rename(target / "model.pt")
    return target / "model.pt"


def test_renamed_file_is_compared(file_bench):
    file_bench.stage("B", ACCEPTED)
    renamed = rename_first(file_bench)
    inode = renamed.stat().st_ino
    file_bench.publish()
    assert (renamed.read_bytes(), renamed.stat().st_ino) == (ACCEPTED["model.pt"], inode)
    assert sorted(p.name for p in (file_bench.folder / "user").iterdir()) == ["empty", "logs", "model.pt"]


@pytest.mark.parametrize("data", [b"short", b"WEIGHTS of B" * 1000])
def test_renamed_file_that_was_changed(file_bench, data):
    file_bench.stage("B", ACCEPTED)
    rename_first(file_bench).write_bytes(data)
    with pytest.raises(FailedError, match="the accepted outputs are gone"):
        file_bench.publish()


# An http URL: the outputs are in the attempt's folder


def stage_in_attempt_folder(bench, files):
    root = bench.outputs.folder.attempt_folder(JOB, "0-2").output
    write_files(root / staged_name(RUN, JOB, "B", ""), files)
    (root / bench.make_manifest("B", files).name).write_text(bench.make_manifest("B", files).to_text())
    return root


def test_http(tmp_path):
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=503)]) as server:
        server.upload_answer = f"{server.url}/elsewhere\n"
        bench = Workbench(tmp_path, Output(Location(f"{server.url}/up/")))
        root = stage_in_attempt_folder(bench, {"model.pt": b"weights"})
        publication = bench.publish()
        assert (publication.url, publication.answer) == (f"{server.url}/up/model.pt", f"{server.url}/elsewhere")
        n_requests = len(server.requests)
        assert bench.publish() == publication
        assert len(server.requests) == n_requests, "it is not uploaded twice"
    assert (tmp_path / "served/up/model.pt").read_bytes() == b"weights"
    assert not list(root.rglob("model.pt"))


def test_http_server_refuses(tmp_path):
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=404)] * 99) as server:
        bench = Workbench(tmp_path, Output(Location(f"{server.url}/up")))
        root = stage_in_attempt_folder(bench, {"model.pt": b"weights"})
        with pytest.raises(
            FailedError, match=r"404.*they are kept in the attempt's folder, below .packtrain"
        ) as caught:
            bench.publish()
    assert caught.value.kind == "upload_refused"
    assert list(root.rglob("model.pt"))
