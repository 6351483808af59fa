"""Several things at once, in threads, and the error that came first."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable


def run_parallel(tasks: Sequence[Callable[[], None]], on_error: Callable[[], None] = lambda: None) -> None:
    """Run all at once and wait for all. Raises the error that came first; others are mostly its consequence.

    `on_error` is called after each error, in the thread that had it."""
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)
            on_error()

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
