"""The first process of a pool's namespace: starts the master and ends with its standard input, which ends everything.

So a pool never outlives whoever started it, however that ends. It also takes in what others leave behind, since a
namespace's first process is the parent of all orphans.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main() -> None:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    master = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nothing)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        if woken in ready and master in _reap_children(os.read(woken, 1000)):
            sys.exit("condor_master has ended")


def _reap_children(_: bytes) -> set[int]:
    gone: set[int] = set()
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return gone
        if not pid:
            return gone
        gone.add(pid)


if __name__ == "__main__":
    main()
