"""The init process of a cluster's PID namespace: starts daemons on request, and exits when its standard input closes.

The kernel then kills everything in the namespace, so a cluster never outlives the process that started it. Requests are
lines of JSON: {"argv": […], "env": {…}, "log": PATH, "cwd": PATH}. The answer to each is the daemon's process id inside
the namespace. A daemon that exits is not restarted: tests kill daemons on purpose.
"""

from __future__ import annotations

import json
import os
import select
import signal
from typing import Any


def main() -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 1000)
            _reap_children()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                print(_start_daemon(json.loads(line)), flush=True)


def _start_daemon(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.execve(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        os.write(2, f"{request['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reap_children() -> None:
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
