"""Build the channel and a workspace and serve them: `python -m testbed.pixi FOLDER [WHEEL…]`."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.http_server import HttpServer
from testbed.pixi.channel import build_channel
from testbed.pixi.workspace import write_workspace


def main(folder: Path, wheels: list[Path]) -> None:
    site = build_channel(folder / "site", wheels)
    server = HttpServer(site)
    print(f"{server.url}: locked in {write_workspace(folder / 'workspace', site, server.url)}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), [Path(wheel) for wheel in sys.argv[2:]])
