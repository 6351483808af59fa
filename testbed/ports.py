"""Ports for servers that cannot choose one themselves, given to nobody else meanwhile.

They lie below those that the kernel gives to outgoing connections, which would take one before its server does; and
a name that only one process can have, until it ends, keeps other tests of ours away from each.
"""

from __future__ import annotations

import random
import socket

_MIN_PORT, _MAX_PORT = 10240, 32000
_reservations: list[socket.socket] = []


def reserve_ports(count: int, *, extra_offset: int = 0) -> list[int]:
    """`also`: how far above each the server opens one more, which is then as free."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_MIN_PORT, _MAX_PORT - extra_offset)
        if _try_reserve(port) and (not extra_offset or _try_reserve(port + extra_offset)):
            found.append(port)
    return found


def _try_reserve(port: int) -> bool:
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0packtrain-testbed-port-{port}")
        socket.create_server(("", port)).close()
    except OSError:
        mark.close()
        return False
    _reservations.append(mark)
    return True
