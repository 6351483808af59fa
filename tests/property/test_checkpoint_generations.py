"""Any interleaving of saves, uploads, kills and resumes of several attempts, with a backend that fails at any moment.

What is visible is complete, and the next attempt resumes from the most advanced complete generation.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.agent.checkpoints.record import MAX_GENERATIONS, CheckpointRecord, best_first
from packtrain.agent.checkpoints.restore import fetch_generation
from packtrain.agent.checkpoints.store import CheckpointStore
from packtrain.agent.checkpoints.upload_executor import SupersededError, UploadExecutor
from packtrain.agent.checkpoints.upload_planner import (
    CheckpointSnapshot,
    CommitGeneration,
    DeleteGeneration,
    UploadPlanner,
)
from packtrain.errors import TransferError
from packtrain.plan import Location, RemoteFile
from tests.support.memory_object_store import MemoryBackend
from tests.support.programs import counting_trainer

LOCATION = Location("memory://bucket/run")
SINGLE_FILE_LOCATION = Location("http://h.example/ckpt?sig=1")
CHECKPOINT_URL = "http://h.example/ckpt.packtrain-checkpoint?sig=1"
NAMES = ("ckpt/a.bin", "ckpt/b.bin")
FAULTS = ("none", "none", "none", "before", "after")


class FlakyBackend(MemoryBackend):
    """Fails the next write before or after it took effect; the caller cannot distinguish the two."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = "none"
        self.complete_uploads: set[tuple[str, str]] = set()  # URLs with the digests of all objects they ever had

    def put(self, location: Location, path: Path, on_bytes_sent: Any = None, *, adopt_uploads: bool = True) -> None:
        self._write(lambda: self._put(location, path))

    def _put(self, location: Location, path: Path) -> None:
        super().put(location, path)
        self.complete_uploads.add((location.url, sha256(self.objects[location.url]).hexdigest()))

    def delete(self, location: Location) -> None:
        self._write(lambda: super(FlakyBackend, self).delete(location))

    def _write(self, write: Any) -> None:
        fault, self.fault = self.fault, "none"
        if fault == "before":
            raise TransferError("service_unavailable", "it is down")
        write()
        if fault == "after":
            raise TransferError("service_unavailable", "it went down")


@dataclass
class Attempt:
    emitter: str
    store: CheckpointStore
    planner: UploadPlanner
    executor: UploadExecutor
    step: int
    save_numbers: Any = field(default_factory=count)


class World:
    """Several attempts of one job that share a backend. Each public method up to `damage` is one kind of event."""

    names = NAMES
    location = LOCATION

    def __init__(self, folder: Path) -> None:
        self.folder, self.backend = folder, FlakyBackend()
        self.attempts: list[Attempt] = []
        self.n_started = 0
        self.committed: dict[str, list[CheckpointRecord]] = {}  # by emitter
        self.n_failures: Counter[str] = Counter()
        self.damaged: set[tuple[str, int]] = set()

    def make_store(self, emitter: str = "", **options: Any) -> CheckpointStore:
        return CheckpointStore(self.location, self.backend, "run-1", "0", emitter, **options)  # type: ignore[arg-type]

    # Events

    def start(self, number: int, fault: str) -> None:
        self.n_started += 1
        emitter = f"agent-{self.n_started}"
        store = self.make_store(emitter)
        record = self.restore(store)
        self.assert_most_advanced(record)
        executor = UploadExecutor(store, self.folder / f"{emitter}.json", lambda: None)
        self.attempts.append(Attempt(emitter, store, UploadPlanner(), executor, record.step if record else 0))

    def save(self, number: int, fault: str) -> None:
        attempt = self.choose_attempt(number)
        if attempt:
            attempt.step += 1 + number % 3
            folder = self.folder / attempt.emitter / str(next(attempt.save_numbers))
            for name in self.names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(counting_trainer.checkpoint_content(attempt.step, 60))
            attempt.planner.add(CheckpointSnapshot(folder, self.names, "ckpt", attempt.step))

    def act(self, number: int, fault: str) -> None:
        attempt = self.choose_attempt(number)
        action = attempt.planner.next_action(0.0) if attempt else None
        if attempt is None or action is None:
            return
        self.backend.fault = fault
        try:
            record = attempt.executor.execute(action)
        except TransferError:
            attempt.planner.mark_failed(action)
            self.n_failures[attempt.emitter] += 1
            return
        finally:
            self.backend.fault = "none"
        attempt.planner.mark_done(action)
        if record is not None:
            self.committed.setdefault(attempt.emitter, []).append(record)

    def upload_generations(self, number: int, fault: str) -> None:
        """Upload complete generations one after the other, then interrupt the deletion of the oldest."""
        for _ in range(MAX_GENERATIONS):
            self.save(number, "none")
            for _ in range(len(NAMES) + 1 + MAX_GENERATIONS):
                self.act(number, "none")
        self.save(number, "none")
        for _ in range(len(NAMES) + 1):
            self.act(number, "none")
        self.act(number, fault)

    def kill(self, number: int, fault: str) -> None:
        attempt = self.choose_attempt(number)
        if attempt:
            self.attempts.remove(attempt)

    def damage(self, number: int, fault: str) -> None:
        """Change or delete a file of a generation at the destination."""
        urls = sorted(url for url in self.backend.objects if url.endswith(".bin") and "/checkpoints/" in url)
        if urls:
            url = urls[number % len(urls)]
            emitter, generation = url.split("/0/", 1)[1].split("/")[:2]
            self.damaged.add((emitter, int(generation)))
            if fault == "none":
                self.backend.objects[url] = b"step 9 of something else\n"
            else:
                del self.backend.objects[url]

    def choose_attempt(self, number: int) -> Attempt | None:
        return self.attempts[number % len(self.attempts)] if self.attempts else None

    # Invariants

    def restore(self, store: CheckpointStore) -> CheckpointRecord | None:
        for record in best_first(store.read_records()):
            try:
                fetch_generation(store.remote_files(record), self.folder / "restored", self.fetch_file)
                return record
            except TransferError:
                continue
        return None

    def fetch_file(self, remote_file: RemoteFile, target: Path) -> None:
        data = self.backend.open(remote_file.locations[0]).read()
        assert remote_file.digest is not None
        if sha256(data).hexdigest() != remote_file.digest.value:
            raise TransferError("digest_mismatch", "it is not the file")
        target.write_bytes(data)

    def assert_most_advanced(self, restored: CheckpointRecord | None) -> None:
        kept = [r for records in self.committed.values() for r in records[-MAX_GENERATIONS:]]
        intact_steps = [r.step for r in kept if (r.emitter, r.generation) not in self.damaged]
        assert (restored.step if restored else -1) >= max(intact_steps, default=-1), "a complete generation was lost"
        if restored:
            steps = {
                counting_trainer.parse_checkpoint_step((self.folder / "restored" / name).read_bytes()) for name in NAMES
            }
            assert steps == {restored.step}, "files of different generations were mixed"

    def check(self) -> None:
        reader = self.make_store()
        visible = reader.read_records()
        assert reader.broken_records == []
        for record in visible:
            if (record.emitter, record.generation) not in self.damaged:
                fetch_generation(reader.remote_files(record), self.folder / "checked", self.fetch_file)
        for emitter in {record.emitter for record in visible}:
            n_visible = sum(record.emitter == emitter for record in visible)
            assert n_visible <= MAX_GENERATIONS + 1 + self.n_failures[emitter], "old generations are deleted"
        assert all("/.packtrain/" in url for url in self.backend.objects), "the user's path is the supervisor's"

    def settle(self) -> None:
        """Let all running attempts finish their uploads without faults."""
        for attempt in self.attempts:
            while (action := attempt.planner.next_action(0.0)) is not None:
                record = attempt.executor.execute(action)
                attempt.planner.mark_done(action)
                if record is not None:
                    self.committed.setdefault(attempt.emitter, []).append(record)
            assert attempt.planner.is_idle


class SingleFileWorld(World):
    """The destination holds one generation of one file."""

    names = NAMES[:1]
    location = SINGLE_FILE_LOCATION

    def start(self, number: int, fault: str) -> None:
        self.n_started += 1
        emitter, broken = f"agent-{self.n_started}", set[str]()
        store = self.make_store(emitter, broken_generations=broken)
        restored = self.restore(store)
        broken |= {record.prefix for record in store.read_records() if record != restored}
        executor = UploadExecutor(store, self.folder / f"{emitter}.json", lambda: None)
        step = restored.step if restored else 0
        self.attempts.append(Attempt(emitter, store, UploadPlanner(single_file=True), executor, step))

    def act(self, number: int, fault: str) -> None:
        try:
            super().act(number, fault)
        except SupersededError:
            attempt = self.choose_attempt(number)
            assert attempt is not None
            attempt.planner.discard(attempt.planner.next_action(0.0))  # type: ignore[arg-type]

    def damage(self, number: int, fault: str) -> None:
        self.backend.objects[CHECKPOINT_URL] = b"step 9 of something else\n"

    def check(self) -> None:
        for record in self.make_store().read_records():
            assert (CHECKPOINT_URL, record.files[0].sha256) in self.backend.complete_uploads
        assert len(self.backend.objects) <= 2


EVENTS = ("start", "save", "save", "act", "act", "act", "upload_generations", "kill", "damage")
event_lists = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5), st.sampled_from(FAULTS)), max_size=40)


def play(world: World, events: list[tuple[str, int, str]]) -> None:
    world.start(0, "none")
    for event, number, fault in events:
        getattr(world, event)(number, fault)
        world.check()


@settings(max_examples=200, deadline=None)
@given(event_lists)
def test_single_file_destination(events):
    """A record never names a file that was not uploaded, and the last attempt can be resumed."""
    with tempfile.TemporaryDirectory() as folder:
        world = SingleFileWorld(Path(folder))
        play(world, events)
        world.attempts.clear()
        world.start(0, "none")
        world.save(0, "none")
        world.settle()
        record = world.restore(world.attempts[0].store)
        assert record is not None
        assert (record.emitter, record.step) == (world.attempts[0].emitter, world.attempts[0].step)
        assert world.attempts[0].planner.max_step == record.step


@settings(max_examples=200, deadline=None)
@given(event_lists)
def test_visible_generations_are_complete_and_none_is_lost(events):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        play(world, events)
        world.start(0, "none")  # it asserts that it restores the most advanced generation


@settings(max_examples=50, deadline=None)
@given(event_lists)
def test_two_generations_are_kept(events):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        play(world, [event for event in events if event[0] != "damage"])
        world.start(0, "none")
        world.save(0, "none")
        world.save(len(world.attempts) - 1, "none")
        world.settle()
        world.check()
        visible = world.make_store().read_records()
        for emitter in {attempt.emitter for attempt in world.attempts}:
            assert sum(record.emitter == emitter for record in visible) <= MAX_GENERATIONS


# The planner alone


def make_snapshots(folder, *steps):
    return [CheckpointSnapshot(folder, ("f",), "f", step) for step in steps]


def test_current_upload_completes_and_newest_is_next(tmp_path):
    planner = UploadPlanner()
    snapshots = make_snapshots(tmp_path, 0, 1, 2, 3)
    planner.add(snapshots[0])
    upload = planner.next_action(0.0)
    for snapshot in snapshots[1:]:
        planner.add(snapshot)
    assert planner.garbage == snapshots[1:3]
    planner.mark_done(upload)
    assert isinstance(planner.next_action(0.0), CommitGeneration), "a slow connection completes what it started"
    planner.mark_failed(planner.next_action(0.0))
    assert planner.next_action(0.0).snapshot is snapshots[3]


def test_newer_snapshot_replaces_failed_upload(tmp_path):
    planner = UploadPlanner()
    first, second = make_snapshots(tmp_path, 1, 2)
    planner.add(first)
    planner.mark_failed(planner.next_action(0.0))
    assert planner.next_action(0.0).snapshot is first, "there is no newer one"
    planner.add(second)
    planner.mark_failed(planner.next_action(0.0))
    assert planner.next_action(0.0).snapshot is second
    for _ in range(2):
        planner.mark_done(planner.next_action(0.0))
    assert planner.next_action(0.0) == DeleteGeneration(1, ("f",)), "the partial upload is deleted"


def test_frequent_saves_do_not_fill_the_destination(tmp_path):
    planner, actions = UploadPlanner(), []
    for snapshot in make_snapshots(tmp_path, *range(20)):
        planner.add(snapshot)
        actions.append(planner.next_action(0.0))
        planner.mark_done(actions[-1])
    n_deleted = sum(isinstance(action, DeleteGeneration) for action in actions)
    assert n_deleted >= sum(isinstance(action, CommitGeneration) for action in actions) - MAX_GENERATIONS - 1


def test_backoff_grows_until_success(tmp_path):
    planner = UploadPlanner()
    planner.add(*make_snapshots(tmp_path, 1))
    backoffs_s = []
    for _ in range(20):
        planner.mark_failed(planner.next_action(0.0))
        backoffs_s.append(planner.backoff_s)
    assert backoffs_s == sorted(backoffs_s)
    assert (backoffs_s[0], backoffs_s[-1]) == (0.5, 60.0)
    planner.mark_done(planner.next_action(0.0))
    assert planner.backoff_s == 0.0


def test_min_interval_ends_with_flush(tmp_path):
    first, second = make_snapshots(tmp_path, 1, 2)

    def planner_after_first_upload():
        planner = UploadPlanner(min_interval_s=600.0)
        planner.add(first)
        for _ in range(2):
            planner.mark_done(planner.next_action(100.0))
        planner.add(second)
        return planner

    planner = planner_after_first_upload()
    assert planner.next_action(699.0) is None
    assert planner.next_action(700.0).snapshot is second
    planner = planner_after_first_upload()
    planner.flush()
    assert planner.next_action(101.0).snapshot is second
