"""A full disk truncates one line of a journal; the lines after it remain readable."""

import os
import subprocess
import sys

from packtrain.events import JournalReader

SCRIPT = """
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
        sys.exit("emit did not raise OSError")
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.emit("agent.ended", outcome="failed")
"""


def test_line_after_truncated_line(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "journal")], check=True, env=env)
    reader = JournalReader(tmp_path / "journal")
    assert [(event.kind, event.seq) for event in reader.read()] == [("notice", 1), ("agent.ended", 4)]
    assert reader.n_invalid_lines == 1
