"""The run store in SQLite. Each object belongs to one thread; any number of processes may use the file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from packtrain.errors import FormatError, LeaseLostError, UnavailableError
from packtrain.events import Event
from packtrain.fileutil import durable_mkdir
from packtrain.state.site_history import MAX_AGE_S, SiteObservation
from packtrain.store.api import JournalCursor, Lease, RunInfo, StoredEvent
from packtrain.store.location import file_system_type, is_network_file_system

STORE_VERSION = 4
_BUSY_TIMEOUT_S = 30.0
_MAX_OBSERVATIONS = 50_000
_EVENT_COLUMNS = "id, received_at, run, job, emitter, seq, kind, wall, mono, data"
_INSERT_EVENT = f"INSERT OR IGNORE INTO events ({_EVENT_COLUMNS}) VALUES (NULL,?,?,?,?,?,?,?,?,?)"  # noqa: S608
_LEASE_COLUMNS = "run, epoch, holder, host, pid, expires_at, released"


class SqliteStore:
    """Implements `store.api.Store`.

    Args:
        path: The database file.
        clock: Returns the Unix time.
        busy_timeout_s: How long to wait for other processes that write.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, busy_timeout_s: float = _BUSY_TIMEOUT_S
    ) -> None:
        self.path, self._clock, self._busy_timeout_s = path, clock, busy_timeout_s
        try:
            durable_mkdir(path.parent)
            self._db = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
            self._initialize()
        except (OSError, sqlite3.OperationalError) as error:
            raise UnavailableError(
                f"the store {path} cannot be opened ({error}); set PACKTRAIN_STORE to a writable path"
            ) from None
        except sqlite3.DatabaseError as error:
            raise FormatError(f"the store {path} cannot be read ({error}); move it away to start a new one") from None

    def _initialize(self) -> None:
        self._set_journal_mode("DELETE" if is_network_file_system(file_system_type(self.path)) else "WAL")
        self._db.execute("PRAGMA synchronous = EXTRA")  # a decision survives a power cut before it is acted on
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, STORE_VERSION):
            raise FormatError(
                f"the store {self.path} has version {version}, but this packtrain reads version {STORE_VERSION}; "
                "set PACKTRAIN_STORE to another path"
            )
        if version == 0:
            self._db.executescript(resources.files("packtrain.store").joinpath("schema.sql").read_text("utf-8"))
            self._db.execute(f"PRAGMA user_version = {STORE_VERSION}")

    def _set_journal_mode(self, mode: str) -> None:
        """Set the journal mode; SQLite's busy timeout does not cover it when two processes create the store at once."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                self._db.execute(f"PRAGMA journal_mode = {mode}")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise UnavailableError(f"the store {self.path} cannot be written ({error}); is its disk full?") from error
        finally:
            if self._db.in_transaction:  # on a full disk SQLite has rolled back already
                self._db.execute("ROLLBACK")

    # Events

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[JournalCursor, int] | None = None,
        progress: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """See `store.api.Store.append`."""
        rows = [_to_row(event, self._clock()) for event in events]
        with self._transaction() as db:
            if lease:
                self._check_lease(lease)
            db.executemany(_INSERT_EVENT, rows)
            db.executemany(
                "INSERT INTO cursors VALUES (?,?,?) ON CONFLICT DO UPDATE SET offset = max(offset, excluded.offset)",
                [(run, path, offset) for (run, path), offset in (cursors or {}).items()],
            )
            db.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?,?,?)",
                [(run, attempt, json.dumps(dict(data))) for (run, attempt), data in (progress or {}).items()],
            )

    def events(self, run: str, after_id: int = 0, kind: str | None = None) -> list[StoredEvent]:
        """See `store.api.Store.events`."""
        rows = self._db.execute(
            f"SELECT {_EVENT_COLUMNS} FROM events WHERE run = ? AND id > ? AND ifnull(kind = ?, 1) ORDER BY id",  # noqa: S608
            (run, after_id, kind),
        )
        return [_from_row(row) for row in rows]

    def progress(self, run: str) -> dict[str, dict[str, Any]]:
        """See `store.api.Store.progress`."""
        rows = self._db.execute("SELECT attempt, data FROM progress WHERE run = ?", (run,))
        return {attempt: json.loads(data) for attempt, data in rows}

    def data_version(self) -> int:
        """Return a number that changes whenever another connection writes; cheaper than reading events."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def cursors(self, run: str) -> dict[str, int]:
        return dict(self._db.execute("SELECT path, offset FROM cursors WHERE run = ?", (run,)).fetchall())

    # Observations of sites

    def add_observations(self, observations: Iterable[SiteObservation]) -> None:
        """Store observations, replacing those with the same key, and delete those too old to matter."""
        rows = [(one.run, one.key, one.ended_at, json.dumps(one.to_data())) for one in observations]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO site_observations VALUES (?,?,?,?)", rows)
            db.execute("DELETE FROM site_observations WHERE ended_at < ?", (self._clock() - MAX_AGE_S,))

    def observations(self) -> list[SiteObservation]:
        """Return the newest observations of all runs."""
        query = "SELECT data FROM site_observations ORDER BY ended_at DESC LIMIT ?"
        rows = self._db.execute(query, (_MAX_OBSERVATIONS,))
        return [SiteObservation.from_data(json.loads(data)) for (data,) in rows]

    # Runs

    def add_run(self, info: RunInfo, created_event: Event) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO runs VALUES (?,?,?,?,?)",
                (info.run, info.name, info.engine, str(info.folder), info.created_at),
            )
            marks = ",".join("?" * 9)
            insert = f"INSERT INTO events ({_EVENT_COLUMNS}) VALUES (NULL,{marks})"  # noqa: S608
            db.execute(insert, _to_row(created_event, self._clock()))

    def list_runs(self) -> list[RunInfo]:
        """Return all runs, the newest last."""
        rows = self._db.execute("SELECT run, name, engine, folder, created_at FROM runs ORDER BY created_at, run")
        return [RunInfo(run, name, engine, Path(folder), at) for run, name, engine, folder, at in rows]

    # Leases

    def get_lease(self, run: str) -> Lease | None:
        row = self._db.execute(f"SELECT {_LEASE_COLUMNS} FROM leases WHERE run = ?", (run,)).fetchone()  # noqa: S608
        return Lease(*row) if row else None

    def acquire_lease(
        self, run: str, holder: str, host: str, pid: int, ttl_s: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        """See `store.api.Store.acquire_lease`."""
        with self._transaction() as db:
            current = self.get_lease(run)
            if current and not current.is_released and current.expires_at > self._clock() and is_alive(current):
                raise UnavailableError(
                    f"the run {run} already has a supervisor (process {current.pid} on {current.host}); "
                    f"watch it with `packtrain ps -w {run}`"
                )
            lease = Lease(run, current.epoch + 1 if current else 1, holder, host, pid, self._clock() + ttl_s)
            values: Sequence[object] = (run, lease.epoch, holder, host, pid, lease.expires_at, 0)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?,?,?,?,?,?,?)", values)
        return lease

    def renew_lease(self, lease: Lease, ttl_s: float) -> None:
        with self._transaction() as db:
            self._check_lease(lease)
            db.execute("UPDATE leases SET expires_at = ? WHERE run = ?", (self._clock() + ttl_s, lease.run))

    def release_lease(self, lease: Lease) -> None:
        with self._transaction() as db:
            db.execute("UPDATE leases SET released = 1 WHERE run = ? AND epoch = ?", (lease.run, lease.epoch))

    def _check_lease(self, lease: Lease) -> None:
        current = self.get_lease(lease.run)
        if current is None or current.epoch != lease.epoch:
            raise LeaseLostError(f"another supervisor has taken over the run {lease.run}; this one stops")


def _to_row(event: Event, received_at: float) -> tuple[object, ...]:
    header = (received_at, event.run, event.job, event.emitter, event.seq, event.kind, event.wall, event.mono)
    return (*header, json.dumps(dict(event.data)))  # ASCII escapes, because SQLite cannot store unpaired surrogates


def _from_row(row: tuple[int, float, str, str, str, int, str, float, float, str]) -> StoredEvent:
    id_, received_at, run, job, emitter, seq, kind, wall, mono, data = row
    return StoredEvent(id_, received_at, Event(run, job, emitter, seq, kind, wall, mono, json.loads(data)))
