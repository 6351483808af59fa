"""Servers that end with the process that started them, also when that is killed: prefixes of commands.

subprocess.Popen([*KILLED_WITH_US, "weed", …])      from the main thread: the thread that starts it is what counts
"""

from __future__ import annotations

KILL_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
TERMINATE_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")  # for a server with processes of its own, which it ends
