"""Servers that end with the process that started them, also when that is killed: prefixes of commands.

subprocess.Popen([*KILLED_WITH_US, "weed", …])      from the main thread: the thread that starts it is what counts
"""

from __future__ import annotations

KILLED_WITH_US = ("setpriv", "--pdeathsig", "KILL")
ENDED_WITH_US = ("setpriv", "--pdeathsig", "TERM")  # for a server with processes of its own, which it ends
