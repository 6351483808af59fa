"""Several agents' fetches in one process: `crowd_of_agents.py COUNT FOLDER SHA256 URL…`.

Says "ready", waits for a line, then says for each fetch when it was done (monotonic clock), or why it failed.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.fetch import fetch

PATIENCE_S = 300.0


def _fetch(item: Item, target: Path) -> None:
    try:
        fetch(item, target, str, patience_s=PATIENCE_S, stop=lambda: None, progress=lambda done, total: None)
        said = f"done {time.monotonic()}"
    except FailedError as error:
        said = f"{error.kind}: {error}"
    target.unlink(missing_ok=True)
    sys.stdout.write(f"{said}\n")


def main() -> None:
    count, folder, sha256, *urls = sys.argv[1:]
    item = Item("data.bin", tuple(Ref(url) for url in urls), digest=Digest("sha256", sha256))
    targets = [Path(folder, f"{os.getpid()}-{number}.bin") for number in range(int(count))]
    threads = [threading.Thread(target=_fetch, args=(item, target)) for target in targets]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
