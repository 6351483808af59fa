"""A disk that takes half a line costs that line, and no other."""

import os
import subprocess
import sys

from packtrain.events import JournalReader

PROGRAM = """
import resource, signal, sys
from pathlib import Path
from packtrain.events import Journal, Redactor

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(Path(sys.argv[1]), "r", "0", "agent-1", Redactor())
journal.emit("notice", text="before")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 20, hard))
for _ in range(2):
    try:
        journal.emit("notice", text="lost")
        sys.exit("the full disk was not noticed")
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.emit("agent.ended", outcome="failed")
"""


def test_the_line_after_a_torn_one_can_be_read(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "journal")], check=True, env=environ)
    reader = JournalReader(tmp_path / "journal")
    assert [(event.kind, event.seq) for event in reader.read()] == [("notice", 1), ("agent.ended", 4)]
    assert reader.n_invalid_lines == 1
