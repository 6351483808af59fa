"""Run several tasks at once, in threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable


def run_parallel(tasks: Sequence[Callable[[], None]], on_error: Callable[[], None] = lambda: None) -> None:
    """Run all tasks at once, wait for them, and raise the first error; later ones are mostly its consequence.

    Args:
        tasks: One thread runs each of them.
        on_error: Called after each error, in the thread where it occurred.
    """
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)
            on_error()

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
