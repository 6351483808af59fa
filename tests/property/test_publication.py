"""Attempts upload, freeze, continue late and are killed, one is accepted, and supervisors crash between any two
objects: any interleaving of these ends with exactly the accepted outputs.

Attempts and supervisors are threads that run the real code on a store in memory. Each waits before every write until
the test lets it continue, so that it can be frozen there, and write late.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.context import AttemptContext
from packtrain.agent.outputs import sync
from packtrain.agent.outputs.inventory import list_outputs
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.events import Redactor
from packtrain.plan import (
    AttemptFolder,
    Job,
    Limits,
    Location,
    ManifestEntry,
    Output,
    OutputManifest,
    Resources,
    RunFolder,
)
from packtrain.plan.output_manifest import staged_name
from packtrain.publication.destination import JobOutputs
from packtrain.publication.intermediate import ShownOutputs, show_synced_files
from packtrain.publication.publish import publish_outputs
from packtrain.transfer import registry
from tests.support.memory_object_store import MemoryBackend

ROOT = "memory://bucket/user"
RUN, JOB = "run-1", "0"
USERS_FILE = "users.txt"
SHARED_MEMORY = Path("/dev/shm")
NAMES = ("model.pt", "log.txt", "sub/a b.bin")


class Died(BaseException):
    """The actor was killed."""


class Actor(threading.Thread):
    """A thread that stops before each of its writes, until `step` lets it continue."""

    def __init__(self, world, run) -> None:
        super().__init__(daemon=True)
        self.world, self._run_actor = world, run
        self._turn, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self.is_killed = self.is_done = False

    def run(self) -> None:
        try:
            self.wait_for_turn()
            self._run_actor(self)
        except Died:
            pass
        except BaseException as error:
            self.world.errors.append(error)
        finally:
            self.is_done = True
            self._paused.release()

    def wait_for_turn(self) -> None:
        self._paused.release()
        self._turn.acquire()
        if self.is_killed:
            raise Died

    def launch(self):
        self.start()
        self._paused.acquire()
        return self

    def step(self) -> None:
        """Let the actor do one write."""
        if not self.is_done:
            self._turn.release()
            self._paused.acquire()

    def finish(self) -> None:
        while not self.is_done:
            self.step()

    def kill(self) -> None:
        self.is_killed = True
        self.finish()


class ActorBackend(MemoryBackend):
    """The shared store, as the actor of the calling thread writes to it."""

    def __init__(self, world) -> None:
        super().__init__()
        self.objects, self._moves = world.objects, world.moves
        thread = threading.current_thread()
        self._actor = thread if isinstance(thread, Actor) else None

    def _wait(self) -> None:
        if self._actor is not None:
            self._actor.wait_for_turn()

    def put(self, location, path, on_bytes_sent=lambda count: None, *, adopt_uploads=True) -> None:
        self._wait()
        super().put(location, path, on_bytes_sent)

    def copy(self, source, target, *, digest=None, may_move=False) -> bool:
        self._wait()
        data = self._read_object(source)
        self.objects[target.url] = data
        if may_move and self._moves:
            del self.objects[source.url]
        return True

    def delete(self, location) -> None:
        self._wait()
        super().delete(location)


class World:
    def __init__(self, folder: Path, delete_sync: bool, moves: bool) -> None:
        self.folder, self.objects, self.errors = folder, {f"{ROOT}/{USERS_FILE}": b"old"}, []
        output = Output(Location(ROOT), continuous_sync=True, delete_sync=delete_sync)
        self.job = Job(JOB, (), Resources(), Limits(grace_s=1), (), output=output, retry_timeout_s=0.0)
        self.attempts, self.finished, self.accepted = [], [], None
        self.expected: dict[str, dict[str, bytes]] = {}  # by emitter
        self.is_ended, self.moves = False, moves

    # Attempts

    def start_attempt(self, size: int) -> None:
        if len(self.attempts) < 3:
            emitter = f"agent-{len(self.attempts)}"
            self.expected[emitter] = {
                name: f"{emitter} {name} {size}".encode() * size for name in NAMES[: 1 + size % 3]
            }
            self.attempts.append(Actor(self, lambda actor: self.run_attempt(emitter)).launch())

    def run_attempt(self, emitter: str) -> None:
        context = self.make_context(emitter)
        continuous = sync.ContinuousSync(context, self.job.output)
        for name, data in (("early.txt", b"deleted later"), *self.expected[emitter].items()):
            path = context.sandbox.output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"unfinished " + data)
            continuous._upload_if_unchanged(path, sync.file_version(path))
            continuous._upload_list()
            path.write_bytes(data)
        (context.sandbox.output / "early.txt").unlink()
        entries = tuple(ManifestEntry(**entry) for entry in list_outputs(context.sandbox.output, True, None))
        manifest = OutputManifest(RUN, JOB, emitter, entries)
        sync._upload_all(context, self.job.output, staged_name(RUN, JOB, emitter, ""), manifest)
        self.finished.append(emitter)

    def make_context(self, emitter: str) -> AttemptContext:
        sandbox = Sandbox(self.folder / emitter, AttemptFolder(self.folder / f"attempt-{emitter}"))
        sandbox.create()
        journal = SimpleNamespace(run=RUN, emitter=emitter, emit=lambda *args, **data: None)
        log = AgentLog(sandbox.attempt_folder.agent_log, Redactor(()))
        return AttemptContext(self.job, sandbox, journal, log, Secrets(self.folder / "secrets"), StopRequest(), None)

    # The supervisor

    def start_supervisor(self) -> None:
        self.supervisor = Actor(self, self.supervise).launch()

    def supervise(self, actor: Actor) -> None:
        outputs = JobOutputs(RUN, self.job, RunFolder(self.folder / "run"), str, lambda: None)
        outputs.folder.job_folder(JOB).mkdir(parents=True, exist_ok=True)
        shown = ShownOutputs()
        while self.accepted is None:
            if self.attempts:
                show_synced_files(outputs, f"agent-{len(self.attempts) - 1}", shown)
            actor.wait_for_turn()
            if self.finished:
                self.accepted = self.finished[0]
        publish_outputs(outputs, f"{JOB}-1", self.accepted)
        self.is_ended = True

    def crash_supervisor(self) -> None:
        self.supervisor.kill()
        self.start_supervisor()

    # The end

    def settle(self) -> None:
        """Let the supervisor end, and everything that is frozen continue afterwards."""
        if not self.finished:
            self.start_attempt(1)
            self.attempts[-1].finish()
        if self.finished:
            self.supervisor.finish()
            assert self.is_ended or self.errors
        for actor in (*self.attempts, self.supervisor):
            actor.kill() if actor is self.supervisor and not self.finished else actor.finish()
        assert self.errors == []

    def check(self) -> None:
        visible = {url[len(ROOT) + 1 :]: data for url, data in self.objects.items() if "/.packtrain/" not in url}
        if self.accepted is None:
            return
        users = {} if self.job.output.delete_sync else {USERS_FILE: b"old"}
        accepted = {quote(name): data for name, data in self.expected[self.accepted].items()}
        assert {name: sha256(data).hexdigest() for name, data in visible.items()} == {
            name: sha256(data).hexdigest() for name, data in {**users, **accepted}.items()
        }


events = st.lists(
    st.one_of(
        st.tuples(st.just("attempt"), st.integers(0, 2), st.integers(1, 12)),  # which continues for some writes
        st.tuples(st.just("supervisor"), st.just(0), st.integers(1, 6)),
        st.tuples(st.just("start"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@pytest.fixture
def worlds(monkeypatch):
    """Holds the current world, whose store serves memory:// URLs."""
    worlds: list[World] = []
    monkeypatch.setitem(registry._BACKEND_FACTORIES, "memory", lambda resolve: ActorBackend(worlds[0]))
    return worlds


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events, st.booleans(), st.booleans())
def test_exactly_the_accepted_outputs_are_published(worlds, events, delete_sync, moves):
    folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY))
    try:
        world = World(folder, delete_sync, moves)
        worlds[:] = [world]
        world.start_supervisor()
        world.start_attempt(2)
        for event, number, count in events:
            if event == "start":
                world.start_attempt(number)
            elif event == "crash":
                world.crash_supervisor()
            elif event == "supervisor":
                for _ in range(count):
                    world.supervisor.step()
            elif number < len(world.attempts):
                if event == "kill":
                    world.attempts[number].kill()
                for _ in range(count):
                    world.attempts[number].step()
            if world.is_ended:
                world.check()
        world.settle()
        world.check()
    finally:
        shutil.rmtree(folder)
