-- The store, version 3. Events are only ever added; everything else can be made anew from them,
-- except leases, which are about living processes.
CREATE TABLE IF NOT EXISTS events (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  run     TEXT NOT NULL,
  job     TEXT NOT NULL,
  emitter TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  wall    REAL NOT NULL,
  mono    REAL NOT NULL,
  arrived REAL NOT NULL,
  data    TEXT NOT NULL,
  UNIQUE (run, job, emitter, seq)
);
CREATE TABLE IF NOT EXISTS runs (
  run     TEXT PRIMARY KEY,
  name    TEXT NOT NULL,
  engine  TEXT NOT NULL,
  folder  TEXT NOT NULL,
  created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS leases (
  run      TEXT PRIMARY KEY,
  epoch    INTEGER NOT NULL,
  holder   TEXT NOT NULL,
  host     TEXT NOT NULL,
  pid      INTEGER NOT NULL,
  expires  REAL NOT NULL,
  released INTEGER NOT NULL
);
-- How far a journal was read: kept together with the events that were read.
CREATE TABLE IF NOT EXISTS cursors (
  run    TEXT NOT NULL,
  path   TEXT NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (run, path)
);
CREATE INDEX IF NOT EXISTS events_of_run ON events (run, id);
-- How attempts fared at places: drawn from the events when an attempt ends, kept for the runs that follow.
CREATE TABLE IF NOT EXISTS visits (
  run  TEXT NOT NULL,
  key  TEXT NOT NULL,
  at   REAL NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (run, key)
);
CREATE INDEX IF NOT EXISTS visits_by_time ON visits (at);
-- How far running attempts are, where a pool tells it: only the newest matters, so it is no event. Version 2 has them
-- by job, in a table `glimpses`, which stays for the supervisors that still write to it.
CREATE TABLE IF NOT EXISTS progress (
  run      TEXT NOT NULL,
  decision TEXT NOT NULL,
  data     TEXT NOT NULL,
  PRIMARY KEY (run, decision)
);
