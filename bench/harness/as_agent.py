"""Fetches one item with the engine as the agent on a worker does: `python -I -S as_agent.py URL… -o FILE`.

Standard library and packtrain's sources only, no command line of packtrain's: what starts here starts on a worker.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.fetch import fetch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("urls", nargs="+")
    parser.add_argument("-o", type=Path, required=True)
    parser.add_argument("--sha256")
    parser.add_argument("--checksums", type=Path)
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--unpack", action="store_true", help="a tar of tars, below the folder -o")
    given = parser.parse_args()
    try:
        _unpacked(given) if given.unpack else _fetched(given, given.o)
    except FailedError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        sys.exit(1)


def _fetched(given: argparse.Namespace, target: Path) -> None:
    digest = Digest("sha256", given.sha256) if given.sha256 else None
    item = Item(target.name, tuple(Ref(url) for url in given.urls), digest=digest)
    got = fetch(item, target, str, **_manner(given), **_checksums(given))
    print(json.dumps({"bytes": got.bytes, "seconds": got.seconds, "retries": got.retries}))


def _checksums(given: argparse.Namespace) -> dict:
    if given.checksums is None:
        return {}
    from packtrain.transfer.checksums import read_checksums

    return {"checksums": read_checksums(given.checksums)}


def _manner(given: argparse.Namespace) -> dict:
    return {"patience_s": given.patience, "stop": lambda: None, "progress": lambda done, total: None}


def _unpacked(given: argparse.Namespace) -> None:
    from packtrain.transfer.ordered import Ordered
    from packtrain.transfer.unpack import unpack_stream

    given.o.mkdir(parents=True)
    name, quiet = Path(given.urls[0]).name, _manner(given)
    with Ordered(Item(name, tuple(Ref(url) for url in given.urls)), str, **quiet) as reader:
        quiet.pop("patience_s")
        unpack_stream(reader, name, given.o, nested=True, limit_bytes=None, **quiet)


if __name__ == "__main__":
    main()
