"""Commands that show a run and its history: ps, logs, why, sites."""
