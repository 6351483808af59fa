"""Free ports for servers that cannot choose one themselves, reserved against other test processes.

Ports are below the range that the kernel uses for outgoing connections. An abstract socket name, which only one process
can hold, reserves each port until the process ends.
"""

from __future__ import annotations

import random
import socket

_MIN_PORT, _MAX_PORT = 10240, 32000
_reservations: list[socket.socket] = []


def reserve_ports(count: int, *, extra_offset: int = 0) -> list[int]:
    """Return `count` free ports. With `extra_offset`, the port that far above each one is free, too."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(_MIN_PORT, _MAX_PORT - extra_offset)
        if _try_reserve(port) and (not extra_offset or _try_reserve(port + extra_offset)):
            ports.append(port)
    return ports


def _try_reserve(port: int) -> bool:
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0packtrain-testbed-port-{port}")
        socket.create_server(("", port)).close()
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True
