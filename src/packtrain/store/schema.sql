-- The run store, version 4. Events are only added; everything else can be derived from them again,
-- except leases, which belong to live processes.
CREATE TABLE IF NOT EXISTS events (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  run         TEXT NOT NULL,
  job         TEXT NOT NULL,
  emitter     TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  kind        TEXT NOT NULL,
  wall        REAL NOT NULL,
  mono        REAL NOT NULL,
  received_at REAL NOT NULL,
  data        TEXT NOT NULL,
  UNIQUE (run, job, emitter, seq)
);
CREATE TABLE IF NOT EXISTS runs (
  run        TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  engine     TEXT NOT NULL,
  folder     TEXT NOT NULL,
  created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS leases (
  run        TEXT PRIMARY KEY,
  epoch      INTEGER NOT NULL,
  holder     TEXT NOT NULL,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  expires_at REAL NOT NULL,
  released   INTEGER NOT NULL
);
-- How far each journal has been read; updated in the transaction that adds its events.
CREATE TABLE IF NOT EXISTS cursors (
  run    TEXT NOT NULL,
  path   TEXT NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (run, path)
);
CREATE INDEX IF NOT EXISTS events_by_run ON events (run, id);
-- How executions fared at sites: derived from the events when an execution ends, kept for later runs.
CREATE TABLE IF NOT EXISTS site_observations (
  run       TEXT NOT NULL,
  execution TEXT NOT NULL,
  ended_at  REAL NOT NULL,
  data      TEXT NOT NULL,
  PRIMARY KEY (run, execution)
);
CREATE INDEX IF NOT EXISTS site_observations_by_time ON site_observations (ended_at);
-- Progress of running attempts as the pool reports it. Only the newest matters, so it is not an event.
CREATE TABLE IF NOT EXISTS progress (
  run     TEXT NOT NULL,
  attempt TEXT NOT NULL,
  data    TEXT NOT NULL,
  PRIMARY KEY (run, attempt)
);
