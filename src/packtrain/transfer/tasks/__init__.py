"""Threads of transfers: tasks in the background, many tasks at once with a deadline, and how they are cancelled."""
