"""The store in SQLite. One object for one thread; any number of processes at once."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from packtrain.errors import FormatError, LeaseLostError, RefusedError
from packtrain.events import Event
from packtrain.state.site_history import FORGOTTEN_S, Visit
from packtrain.store.api import Cursor, Lease, RunRow, Stored
from packtrain.store.location import file_system, is_network

STORE_VERSION = 3
_PATIENCE_S = 30.0
_MOST_VISITS = 50_000
_COLUMNS = "id, arrived, run, job, emitter, seq, kind, wall, mono, data"
_INSERT = f"INSERT OR IGNORE INTO events ({_COLUMNS}) VALUES (NULL,?,?,?,?,?,?,?,?,?)"  # noqa: S608
_LEASE_COLUMNS = "run, epoch, holder, host, pid, expires, released"


class SqliteStore:
    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
            self._prepare()
        except (OSError, sqlite3.OperationalError) as error:
            raise RefusedError(f"the store {path} cannot be opened ({error}); set PACKTRAIN_STORE to a place") from None
        except sqlite3.DatabaseError as error:
            raise FormatError(f"the store {path} cannot be read ({error}); move it away to start anew") from None

    def _prepare(self) -> None:
        self._set_journal_mode("DELETE" if is_network(file_system(self.path)) else "WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > STORE_VERSION:
            raise FormatError(f"the store {self.path} has version {version}; this packtrain knows {STORE_VERSION}")
        if version < STORE_VERSION:
            self._db.executescript(resources.files("packtrain.store").joinpath("schema.sql").read_text("utf-8"))
            self._db.execute(f"PRAGMA user_version = {STORE_VERSION}")

    def _set_journal_mode(self, mode: str) -> None:
        """SQLite's own patience does not cover this switch when two processes make the store at once."""
        deadline = time.monotonic() + _PATIENCE_S
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
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise RefusedError(f"the store {self.path} cannot be written ({error}); is its disk full?") from error
        finally:
            if self._db.in_transaction:  # SQLite itself has rolled back when the disk is full
                self._db.execute("ROLLBACK")

    # Events

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[Cursor, int] | None = None,
        glimpses: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """Add what is new, all or nothing. With a lease: only while it is the newest of its run.
        `cursors` are moved in the same transaction, and never back; `glimpses`, by run and decision, replace older."""
        rows = [_to_row(event, self._clock()) for event in events]
        with self._writing() as db:
            if lease:
                self._check(lease)
            db.executemany(_INSERT, rows)
            db.executemany(
                "INSERT INTO cursors VALUES (?,?,?) ON CONFLICT DO UPDATE SET offset = max(offset, excluded.offset)",
                [(run, path, offset) for (run, path), offset in (cursors or {}).items()],
            )
            db.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?,?,?)",
                [(run, decision, json.dumps(dict(data))) for (run, decision), data in (glimpses or {}).items()],
            )

    def events(self, run: str, after: int = 0, kind: str | None = None) -> list[Stored]:
        """The run's events that came after the row `after`, all or of one kind."""
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM events WHERE run = ? AND id > ? AND ifnull(kind = ?, 1) ORDER BY id",  # noqa: S608
            (run, after, kind),
        )
        return [_from_row(row) for row in found]

    def glimpses(self, run: str) -> dict[str, dict[str, Any]]:
        """How far the running attempts are, by decision."""
        found = self._db.execute("SELECT decision, data FROM progress WHERE run = ?", (run,))
        return {decision: json.loads(data) for decision, data in found}

    def version(self) -> int:
        """Changes whenever another connection wrote: a cheap look before asking for events."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def cursors(self, run: str) -> dict[str, int]:
        return dict(self._db.execute("SELECT path, offset FROM cursors WHERE run = ?", (run,)).fetchall())

    # Places

    def note(self, visits: Iterable[Visit]) -> None:
        """Keep how attempts fared; the same one again replaces it. What weighs nothing any more is dropped."""
        rows = [(visit.run, visit.key, visit.at, json.dumps(visit.to_data())) for visit in visits]
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO visits VALUES (?,?,?,?)", rows)
            db.execute("DELETE FROM visits WHERE at < ?", (self._clock() - FORGOTTEN_S,))

    def visits(self) -> list[Visit]:
        """Of all runs, the newest ones."""
        found = self._db.execute("SELECT data FROM visits ORDER BY at DESC LIMIT ?", (_MOST_VISITS,))
        return [Visit.from_data(json.loads(data)) for (data,) in found]

    # Runs

    def add_run(self, row: RunRow, created: Event) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT INTO runs VALUES (?,?,?,?,?)",
                (row.run, row.name, row.engine, str(row.folder), row.created),
            )
            marks = ",".join("?" * 9)
            db.execute(f"INSERT INTO events ({_COLUMNS}) VALUES (NULL,{marks})", _to_row(created, self._clock()))  # noqa: S608

    def runs(self) -> list[RunRow]:
        """The newest last."""
        found = self._db.execute("SELECT run, name, engine, folder, created FROM runs ORDER BY created, run")
        return [RunRow(run, name, engine, Path(folder), at) for run, name, engine, folder, at in found]

    # Leases

    def lease(self, run: str) -> Lease | None:
        row = self._db.execute(f"SELECT {_LEASE_COLUMNS} FROM leases WHERE run = ?", (run,)).fetchone()  # noqa: S608
        return Lease(*row) if row else None

    def acquire(
        self, run: str, holder: str, host: str, pid: int, ttl: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        """Take the lease with a new epoch. Refused while another holder lives and its lease has not run out."""
        with self._writing() as db:
            known = self.lease(run)
            if known and not known.released and known.expires > self._clock() and is_alive(known):
                raise RefusedError(
                    f"the run {run} already has a supervisor (process {known.pid} on {known.host}); "
                    f"watch it with `packtrain ps -w {run}`"
                )
            lease = Lease(run, known.epoch + 1 if known else 1, holder, host, pid, self._clock() + ttl)
            values: Sequence[object] = (run, lease.epoch, holder, host, pid, lease.expires, 0)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?,?,?,?,?,?,?)", values)
        return lease

    def renew(self, lease: Lease, ttl: float) -> None:
        with self._writing() as db:
            self._check(lease)
            db.execute("UPDATE leases SET expires = ? WHERE run = ?", (self._clock() + ttl, lease.run))

    def release(self, lease: Lease) -> None:
        with self._writing() as db:
            db.execute("UPDATE leases SET released = 1 WHERE run = ? AND epoch = ?", (lease.run, lease.epoch))

    def _check(self, lease: Lease) -> None:
        known = self.lease(lease.run)
        if known is None or known.epoch != lease.epoch:
            raise LeaseLostError(f"another supervisor has taken over the run {lease.run}; this one stops")


def _to_row(event: Event, arrived: float) -> tuple[object, ...]:
    head = (arrived, event.run, event.job, event.emitter, event.seq, event.kind, event.wall, event.mono)
    return (*head, json.dumps(dict(event.data)))  # plain ASCII: half characters, too, can be stored


def _from_row(row: tuple[int, float, str, str, str, int, str, float, float, str]) -> Stored:
    id_, arrived, run, job, emitter, seq, kind, wall, mono, data = row
    return Stored(id_, arrived, Event(run, job, emitter, seq, kind, wall, mono, json.loads(data)))
