"""Commands that create, start and stop runs: init, check, plan, run, resume, cancel, and the hidden supervise."""
