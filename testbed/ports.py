"""Ports for servers that cannot choose one themselves, given to nobody else meanwhile.

They lie below those that the kernel gives to outgoing connections, which would take one before its server does; and
a name that only one process can have, until it ends, keeps other tests of ours away from each.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10240, 32000
_kept: list[socket.socket] = []


def free_ports(count: int, *, also: int = 0) -> list[int]:
    """`also`: how far above each the server opens one more, which is then as free."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_FIRST, _LAST - also)
        if _kept_for_us(port) and (not also or _kept_for_us(port + also)):
            found.append(port)
    return found


def _kept_for_us(port: int) -> bool:
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0packtrain-testbed-port-{port}")
        socket.create_server(("", port)).close()
    except OSError:
        mark.close()
        return False
    _kept.append(mark)
    return True
