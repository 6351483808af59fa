"""Views of a run and of transfers: text for terminals, plain lines for logs, and JSON.

Views only read. `event_feed` follows the store and keeps the state up to date. `run_table` renders a run for a
terminal, and `plain` formats its events as single lines. `explain` answers `packtrain why`: problem, evidence, fault,
actions, next, fix. `time_summary` adds up how the time was used, `site_table` lists sites, `transfer` shows downloads
and uploads, and `job_json` is the JSON form of a job.
"""
