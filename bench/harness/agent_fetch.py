"""Fetch one file like the agent on a worker: `python -I -S agent_fetch.py URL… -o FILE`.

It uses only the standard library and packtrain's worker modules, not the command line.
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
    args = _parse_arguments(sys.argv[1:])
    try:
        _fetch_and_unpack(args) if args.unpack else _fetch_file(args, args.o)
    except FailedError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        sys.exit(1)


def _parse_arguments(argv: list[str]) -> SimpleNamespace:
    """Parse without argparse, which takes 20 ms to import; the agent reads a JSON plan instead."""
    args = SimpleNamespace(urls=[], o=None, sha256=None, checksums=None, unpack=False)
    remaining = iter(argv)
    for argument in remaining:
        if argument == "--unpack":  # unpack a tar of tars to the folder -o
            args.unpack = True
        elif argument.startswith("-"):
            setattr(args, argument.lstrip("-"), next(remaining))
        else:
            args.urls.append(argument)
    args.o = Path(args.o)
    return args


def _fetch_file(args: SimpleNamespace, target: Path) -> None:
    digest = Digest("sha256", args.sha256) if args.sha256 else None
    remote_file = RemoteFile(target.name, tuple(Location(url) for url in args.urls), digest=digest)
    result = fetch(remote_file, target, str, **_transfer_options(), **_checksum_options(args))
    print(json.dumps({"bytes": result.bytes, "seconds": result.duration_s, "retries": result.retries}))


def _checksum_options(args: SimpleNamespace) -> dict:
    if args.checksums is None:
        return {}
    from packtrain.transfer.integrity.block_checksums import read_checksums

    return {"checksums": read_checksums(Path(args.checksums))}


def _transfer_options() -> dict:
    return {"retry_timeout_s": 300.0, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}


def _fetch_and_unpack(args: SimpleNamespace) -> None:
    from packtrain.transfer.archive.unpack import unpack_stream
    from packtrain.transfer.ordered_download import OrderedDownload

    args.o.mkdir(parents=True)
    name, options = Path(args.urls[0]).name, _transfer_options()
    with OrderedDownload(RemoteFile(name, tuple(Location(url) for url in args.urls)), str, **options) as reader:
        options.pop("retry_timeout_s")
        unpack_stream(reader, name, args.o, nested=True, max_bytes=None, **options)


if __name__ == "__main__":
    main()
