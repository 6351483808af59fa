"""Fetch like several agents in one process: `agent_group.py COUNT FOLDER SHA256 URL…`.

Prints "ready", waits for a line, then prints when each fetch finished (monotonic clock), or why it failed.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import fetch

RETRY_TIMEOUT_S = 300.0


def _fetch_and_report(remote_file: RemoteFile, target: Path) -> None:
    try:
        fetch(
            remote_file,
            target,
            str,
            retry_timeout_s=RETRY_TIMEOUT_S,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
        text = f"done {time.monotonic()}"
    except FailedError as error:
        text = f"{error.kind}: {error}"
    target.unlink(missing_ok=True)
    sys.stdout.write(f"{text}\n")


def main() -> None:
    count, folder, sha256, *urls = sys.argv[1:]
    remote_file = RemoteFile("data.bin", tuple(Location(url) for url in urls), digest=Digest("sha256", sha256))
    targets = [Path(folder, f"{os.getpid()}-{number}.bin") for number in range(int(count))]
    threads = [threading.Thread(target=_fetch_and_report, args=(remote_file, target)) for target in targets]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
