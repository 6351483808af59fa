"""Command prefixes for servers that end with their parent process, even if that is killed.

subprocess.Popen([*KILL_WITH_PARENT, "weed", …])      in the main thread: the signal is sent when the thread ends
"""

from __future__ import annotations

KILL_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
TERMINATE_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")  # for a server that must stop its own child processes
