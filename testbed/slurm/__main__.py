"""Start a cluster for interactive use: `python -m testbed.slurm [--version 26.05] [--accounting]`; Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shlex
import signal
import tempfile
import time
from pathlib import Path

from testbed import condor
from testbed.slurm import install
from testbed.slurm.cluster import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(description="Start a Slurm cluster of three nodes on this machine.")
    parser.add_argument("--version", choices=install.SUITES, default=install.NEWEST)
    parser.add_argument("--accounting", action="store_true", help="also run slurmdbd, so that sacct answers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started_at = time.monotonic()
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        Cluster(Path(folder), options.version, accounting=options.accounting) as cluster,
    ):
        shell_env = "\n".join(f"export {name}={shlex.quote(cluster.env[name])}" for name in ("SLURM_CONF", "PATH"))
        env_file = cluster.folder / "env.sh"
        env_file.write_text(shell_env + "\n")
        print(f"Slurm {options.version} is running ({time.monotonic() - started_at:.1f} s). In another terminal:\n")
        if os.geteuid() == 0:
            user = pwd.getpwuid(5).pw_name
            print(f"    {shlex.join(condor.user_prefix())} bash    # Slurm's jobs run as the user {user}, not as root")
        print(f"    . {env_file}\n    sinfo\n\nCtrl-C stops the cluster.", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
