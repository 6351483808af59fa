"""Shared code of the benchmarks.

`clients` has the command lines of download programs, `measure` runs and measures processes, `results` prints metrics
and bounds, `random_files` creates data, `packtrain_user`, `pool_user` and `slurm_user` use test pools. `agent_fetch`
and `agent_group` are programs that fetch like the agent on a worker. Servers, faults and links are in `testbed`.
"""

import sys
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT_ROOT))  # for `testbed`, which is not installed
