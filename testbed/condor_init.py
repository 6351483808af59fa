"""The init process of a pool's PID namespace: starts the master, and exits when its standard input closes.

The kernel then kills everything in the namespace, so a pool never outlives the process that started it. As the init
process, it also reaps orphans.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main() -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    null_stdin = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    master = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null_stdin)
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        if wake_read in ready and master in _reap_children(os.read(wake_read, 1000)):
            sys.exit("condor_master exited")


def _reap_children(_: bytes) -> set[int]:
    reaped: set[int] = set()
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped
        if not pid:
            return reaped
        reaped.add(pid)


if __name__ == "__main__":
    main()
