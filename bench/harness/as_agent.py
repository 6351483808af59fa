"""Fetches one item with the engine as the agent on a worker does: `python -I -S as_agent.py URL… -o FILE`.

Standard library and packtrain's sources only, no command line of packtrain's: what starts here starts on a worker.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import fetch


def main() -> None:
    given = _parse_arguments(sys.argv[1:])
    try:
        _fetch_and_unpack(given) if given.unpack else _fetch_file(given, given.o)
    except FailedError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        sys.exit(1)


def _parse_arguments(argv: list[str]) -> SimpleNamespace:
    """No argparse: an agent is given its work as JSON, and does not spend 20 ms on that."""
    given = SimpleNamespace(urls=[], o=None, sha256=None, checksums=None, unpack=False)
    rest = iter(argv)
    for word in rest:
        if word == "--unpack":  # a tar of tars, below the folder -o
            given.unpack = True
        elif word.startswith("-"):
            setattr(given, word.lstrip("-"), next(rest))
        else:
            given.urls.append(word)
    given.o = Path(given.o)
    return given


def _fetch_file(args: SimpleNamespace, target: Path) -> None:
    digest = Digest("sha256", args.sha256) if args.sha256 else None
    item = RemoteFile(target.name, tuple(Location(url) for url in args.urls), digest=digest)
    got = fetch(item, target, str, **_transfer_options(), **_checksum_options(args))
    print(json.dumps({"bytes": got.bytes, "seconds": got.duration_s, "retries": got.retries}))


def _checksum_options(args: SimpleNamespace) -> dict:
    if args.checksums is None:
        return {}
    from packtrain.transfer.block_checksums import read_checksums

    return {"checksums": read_checksums(Path(args.checksums))}


def _transfer_options() -> dict:
    return {"patience_s": 300.0, "stop": lambda: None, "progress": lambda done, total: None}


def _fetch_and_unpack(args: SimpleNamespace) -> None:
    from packtrain.transfer.archive.unpack import unpack_stream
    from packtrain.transfer.ordered_download import OrderedDownload

    args.o.mkdir(parents=True)
    name, quiet = Path(args.urls[0]).name, _transfer_options()
    with OrderedDownload(RemoteFile(name, tuple(Location(url) for url in args.urls)), str, **quiet) as reader:
        quiet.pop("patience_s")
        unpack_stream(reader, name, args.o, nested=True, max_bytes=None, **quiet)


if __name__ == "__main__":
    main()
