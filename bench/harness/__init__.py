"""What the benches share: how clients are called (`clients`), measured (`measure`) and judged (`verdict`); `data`.

`as_agent` is a program: the fetch engine as the agent on a worker calls it. Not here: servers, faults and lines,
which are in `testbed`.
"""

import sys
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT_ROOT))  # for `testbed`, which is not installed
