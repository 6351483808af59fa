"""Any interleaving of save, upload, kill and resume, of several attempts at once, on a sink that fails at any moment:
what is visible is complete, and the next attempt goes on from the furthest generation that is whole."""

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
    PublishGeneration,
    UploadPlanner,
)
from packtrain.errors import TransferError
from packtrain.plan import Location, RemoteFile
from tests.support.memory_object_store import MemoryBackend
from tests.support.programs import counting_trainer

REF = Location("memory://bucket/run")
NAMES = ("ckpt/a.bin", "ckpt/b.bin")
FAULTS = ("none", "none", "none", "before", "after")


class FlakyStore(MemoryBackend):
    """Fails the next write, before or after it had its effect: the caller cannot tell."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = "none"
        self.stood: set[tuple[str, str]] = set()  # addresses, and digests of what was ever complete there

    def put(self, ref: Location, path: Path, sent: Any = None) -> None:
        self._acting(lambda: self._take(ref, path))

    def _take(self, ref: Location, path: Path) -> None:
        super().put(ref, path)
        self.stood.add((ref.url, sha256(self.objects[ref.url]).hexdigest()))

    def delete(self, ref: Location) -> None:
        self._acting(lambda: super(FlakyStore, self).delete(ref))

    def _acting(self, act: Any) -> None:
        fault, self.fault = self.fault, "none"
        if fault == "before":
            raise TransferError("service_unavailable", "it is down")
        act()
        if fault == "after":
            raise TransferError("service_unavailable", "it went down")


@dataclass
class Attempt:
    emitter: str
    shelf: CheckpointStore
    carrying: UploadPlanner
    porter: UploadExecutor
    step: int
    saves: Any = field(default_factory=count)


class World:
    names = NAMES

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FlakyStore()
        self.attempts: list[Attempt] = []
        self.started = 0
        self.sealed: dict[str, list[CheckpointRecord]] = {}  # what each emitter knows to be complete
        self.failures: Counter[str] = Counter()
        self.damaged: set[tuple[str, int]] = set()
        self.overlapped = False

    # What may happen

    def start(self, number: int, fault: str) -> None:
        self.started += 1
        emitter = f"agent-{self.started}"
        shelf = CheckpointStore(REF, self.store, "run-1", "0", emitter)  # type: ignore[arg-type]
        found = self.restored(shelf)
        self.assert_furthest(found)
        porter = UploadExecutor(shelf, self.folder / f"{emitter}.json", lambda: None)
        self.attempts.append(Attempt(emitter, shelf, UploadPlanner(), porter, found.step if found else 0))
        self.overlapped |= len(self.attempts) > 1

    def save(self, number: int, fault: str) -> None:
        attempt = self.one(number)
        if attempt:
            attempt.step += 1 + number % 3
            folder = self.folder / attempt.emitter / str(next(attempt.saves))
            for name in self.names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(counting_trainer.checkpoint_content(attempt.step, 60))
            attempt.carrying.add(CheckpointSnapshot(folder, self.names, "ckpt", attempt.step))

    def act(self, number: int, fault: str) -> None:
        attempt = self.one(number)
        act = attempt.carrying.next_action(0.0) if attempt else None
        if attempt is None or act is None:
            return
        self.store.fault = fault
        try:
            record = attempt.porter.execute(act)
        except TransferError:
            attempt.carrying.mark_failed(act)
            self.failures[attempt.emitter] += 1
            return
        finally:
            self.store.fault = "none"
        attempt.carrying.mark_done(act)
        if record is not None:
            self.sealed.setdefault(attempt.emitter, []).append(record)

    def generations(self, number: int, fault: str) -> None:
        """Whole ones, one after the other; removing the one that is too old then is interrupted."""
        for _ in range(MAX_GENERATIONS):
            self.save(number, "none")
            for _ in range(len(NAMES) + 2 + MAX_GENERATIONS):
                self.act(number, "none")
        self.save(number, "none")
        for _ in range(len(NAMES) + 2):
            self.act(number, "none")
        self.act(number, fault)

    def kill(self, number: int, fault: str) -> None:
        attempt = self.one(number)
        if attempt:
            self.attempts.remove(attempt)

    def damage(self, number: int, fault: str) -> None:
        """A disk at the destination loses or changes a file of a generation."""
        found = sorted(url for url in self.store.objects if url.endswith(".bin") and "/checkpoints/" in url)
        if found:
            url = found[number % len(found)]
            emitter, generation = url.split("/0/", 1)[1].split("/")[:2]
            self.damaged.add((emitter, int(generation)))
            if fault == "none":
                self.store.objects[url] = b"step 9 of something else\n"
            else:
                del self.store.objects[url]

    def one(self, number: int) -> Attempt | None:
        return self.attempts[number % len(self.attempts)] if self.attempts else None

    # What must hold

    def restored(self, shelf: CheckpointStore) -> CheckpointRecord | None:
        for record in best_first(shelf.read_records()):
            try:
                fetch_generation(shelf.remote_files(record), self.folder / "restored", self.bring)
                return record
            except TransferError:
                continue
        return None

    def bring(self, item: RemoteFile, target: Path) -> None:
        data = self.store.open(item.locations[0]).read()
        assert item.digest is not None
        if sha256(data).hexdigest() != item.digest.value:
            raise TransferError("digest_mismatch", "it is not the file")
        target.write_bytes(data)

    def assert_furthest(self, found: CheckpointRecord | None) -> None:
        kept = [r for records in self.sealed.values() for r in records[-MAX_GENERATIONS:]]
        whole = [r.step for r in kept if (r.emitter, r.generation) not in self.damaged]
        assert (found.step if found else -1) >= max(whole, default=-1), "a complete generation was lost"
        if found:
            steps = {
                counting_trainer.parse_checkpoint_step((self.folder / "restored" / name).read_bytes()) for name in NAMES
            }
            assert steps == {found.step}, "files of different generations were mixed"

    def check(self) -> None:
        reader = CheckpointStore(REF, self.store, "run-1", "0")  # type: ignore[arg-type]
        visible = reader.read_records()
        assert reader.broken_records == []
        for record in visible:
            if (record.emitter, record.generation) not in self.damaged:
                fetch_generation(reader.remote_files(record), self.folder / "checked", self.bring)
        for emitter in {record.emitter for record in visible}:
            seen = sum(record.emitter == emitter for record in visible)
            assert seen <= MAX_GENERATIONS + 1 + self.failures[emitter], "what is too old is removed"
        self.check_shown(visible)

    def check_shown(self, visible: list[CheckpointRecord]) -> None:
        """The user's own path: whole files, of saves that were complete before."""
        shown = [self.store.objects.get(f"{REF.url}/{name}") for name in NAMES]
        steps = [counting_trainer.parse_checkpoint_step(data) for data in shown if data is not None]
        complete = {record.step for record in visible} | {r.step for rs in self.sealed.values() for r in rs}
        assert set(steps) <= complete

    def settle(self) -> None:
        """Everybody who lives comes to an end, without faults."""
        for attempt in self.attempts:
            while (act := attempt.carrying.next_action(0.0)) is not None:
                record = attempt.porter.execute(act)
                attempt.carrying.mark_done(act)
                if record is not None:
                    self.sealed.setdefault(attempt.emitter, []).append(record)
            assert attempt.carrying.is_idle


ADDRESS = Location("http://h.example/ckpt?sig=1")


class OneAddress(World):
    """Room for one generation."""

    names = NAMES[:1]

    def start(self, number: int, fault: str) -> None:
        self.started += 1
        emitter, void = f"agent-{self.started}", set[str]()
        shelf = CheckpointStore(ADDRESS, self.store, "run-1", "0", emitter, broken_generations=void)  # type: ignore[arg-type]
        found = self.restored(shelf)
        void |= {record.prefix for record in shelf.read_records() if record != found}
        porter = UploadExecutor(shelf, self.folder / f"{emitter}.json", lambda: None)
        step = found.step if found else 0
        self.attempts.append(Attempt(emitter, shelf, UploadPlanner(single_file=True), porter, step))

    def act(self, number: int, fault: str) -> None:
        try:
            super().act(number, fault)
        except SupersededError:
            attempt = self.one(number)
            assert attempt is not None
            attempt.carrying.discard(attempt.carrying.next_action(0.0))  # type: ignore[arg-type]

    def damage(self, number: int, fault: str) -> None:
        self.store.objects[ADDRESS.url] = b"step 9 of something else\n"

    def check(self) -> None:
        for record in CheckpointStore(ADDRESS, self.store, "run-1", "0").read_records():  # type: ignore[arg-type]
            assert (ADDRESS.url, record.files[0].sha256) in self.store.stood
        assert len(self.store.objects) <= 2


@settings(max_examples=200, deadline=None)
@given(st.deferred(lambda: stories))
def test_at_one_address_no_record_names_what_never_stood_there_and_the_last_attempt_is_gone_on_from(story):
    with tempfile.TemporaryDirectory() as folder:
        world = OneAddress(Path(folder))
        play(world, story)
        world.attempts.clear()
        world.start(0, "none")
        world.save(0, "none")
        world.settle()
        found = world.restored(world.attempts[0].shelf)
        assert found is not None
        assert (found.emitter, found.step) == (world.attempts[0].emitter, world.attempts[0].step)
        assert world.attempts[0].carrying.max_step == found.step


HAPPENINGS = ("start", "save", "save", "act", "act", "act", "generations", "kill", "damage")
stories = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5), st.sampled_from(FAULTS)), max_size=40)


def play(world: World, story: list[tuple[str, int, str]]) -> None:
    world.start(0, "none")
    for what, number, fault in story:
        getattr(world, what)(number, fault)
        world.check()


@settings(max_examples=200, deadline=None)
@given(stories)
def test_nothing_incomplete_is_seen_and_nothing_complete_is_lost(story):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        play(world, story)
        world.start(0, "none")  # which looks for the furthest


@settings(max_examples=50, deadline=None)
@given(stories)
def test_in_the_end_the_furthest_is_shown_and_two_are_kept(story):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        play(world, [one for one in story if one[0] != "damage"])
        world.start(0, "none")
        world.save(0, "none")
        world.save(len(world.attempts) - 1, "none")
        world.settle()
        world.check()
        alive = {attempt.emitter for attempt in world.attempts}
        visible = CheckpointStore(REF, world.store, "run-1", "0").read_records()  # type: ignore[arg-type]
        for emitter in alive:
            assert sum(record.emitter == emitter for record in visible) <= MAX_GENERATIONS
        if not world.overlapped:
            shown = counting_trainer.parse_checkpoint_step(world.store.objects[f"{REF.url}/{NAMES[0]}"])
            assert shown == max(record.step for record in visible)


def test_the_newest_wins_but_what_is_on_its_way_arrives(tmp_path):
    carrying = UploadPlanner()
    saves = [CheckpointSnapshot(tmp_path, ("f",), "f", step) for step in range(4)]
    carrying.add(saves[0])
    sending = carrying.next_action(0.0)
    for save in saves[1:]:
        carrying.add(save)
    assert carrying.garbage == saves[1:3]
    carrying.mark_done(sending)
    assert isinstance(carrying.next_action(0.0), CommitGeneration), "a slow line completes what it began"
    carrying.mark_done(carrying.next_action(0.0))
    assert isinstance(carrying.next_action(0.0), PublishGeneration)
    carrying.mark_failed(carrying.next_action(0.0))
    assert carrying.next_action(0.0).snapshot is saves[3]


def test_after_a_failure_the_newest_is_sent_instead(tmp_path):
    carrying = UploadPlanner()
    first, second = (CheckpointSnapshot(tmp_path, ("f",), "f", step) for step in (1, 2))
    carrying.add(first)
    carrying.mark_failed(carrying.next_action(0.0))
    assert carrying.next_action(0.0).snapshot is first, "there is no other"
    carrying.add(second)
    carrying.mark_failed(carrying.next_action(0.0))
    assert carrying.next_action(0.0).snapshot is second
    for _ in range(3):
        carrying.mark_done(carrying.next_action(0.0))
    assert carrying.next_action(0.0) == DeleteGeneration(1, ("f",)), "what was half sent is removed"


def test_a_program_that_saves_all_the_time_does_not_fill_the_destination(tmp_path):
    carrying, acts = UploadPlanner(), []
    for step in range(20):
        carrying.add(CheckpointSnapshot(tmp_path, ("f",), "f", step))
        acts.append(carrying.next_action(0.0))
        carrying.mark_done(acts[-1])
    dropped = sum(isinstance(act, DeleteGeneration) for act in acts)
    assert dropped >= sum(isinstance(act, CommitGeneration) for act in acts) - MAX_GENERATIONS - 1


def test_pauses_grow_and_end_with_success(tmp_path):
    carrying = UploadPlanner()
    carrying.add(CheckpointSnapshot(tmp_path, ("f",), "f", 1))
    pauses = []
    for _ in range(20):
        carrying.mark_failed(carrying.next_action(0.0))
        pauses.append(carrying.backoff_s)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.5, 60.0)
    carrying.mark_done(carrying.next_action(0.0))
    assert carrying.backoff_s == 0.0


def test_not_more_often_than_asked_for_except_at_the_end(tmp_path):
    carrying = UploadPlanner(min_interval_s=600.0)
    first, second = (CheckpointSnapshot(tmp_path, ("f",), "f", step) for step in (1, 2))
    carrying.add(first)
    for _ in range(3):
        carrying.mark_done(carrying.next_action(100.0))
    carrying.add(second)
    assert carrying.next_action(699.0) is None
    assert carrying.next_action(700.0).snapshot is second
    carrying = UploadPlanner(min_interval_s=600.0)
    carrying.add(first)
    for _ in range(3):
        carrying.mark_done(carrying.next_action(100.0))
    carrying.add(second)
    carrying.flush()
    assert carrying.next_action(101.0).snapshot is second
