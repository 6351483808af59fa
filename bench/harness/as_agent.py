"""Fetches one item with the engine as the agent on a worker does: `python -I -S as_agent.py URL… -o FILE`.

Standard library and packtrain's sources only, no command line of packtrain's: what starts here starts on a worker.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.fetch import fetch


def main() -> None:
    given = _given(sys.argv[1:])
    try:
        _unpacked(given) if given.unpack else _fetched(given, given.o)
    except FailedError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        sys.exit(1)


def _given(words: list[str]) -> SimpleNamespace:
    """No argparse: an agent is given its work as JSON, and does not spend 20 ms on that."""
    given = SimpleNamespace(urls=[], o=None, sha256=None, checksums=None, unpack=False)
    rest = iter(words)
    for word in rest:
        if word == "--unpack":  # a tar of tars, below the folder -o
            given.unpack = True
        elif word.startswith("-"):
            setattr(given, word.lstrip("-"), next(rest))
        else:
            given.urls.append(word)
    given.o = Path(given.o)
    return given


def _fetched(given: SimpleNamespace, target: Path) -> None:
    digest = Digest("sha256", given.sha256) if given.sha256 else None
    item = Item(target.name, tuple(Ref(url) for url in given.urls), digest=digest)
    got = fetch(item, target, str, **_manner(), **_checksums(given))
    print(json.dumps({"bytes": got.bytes, "seconds": got.seconds, "retries": got.retries}))


def _checksums(given: SimpleNamespace) -> dict:
    if given.checksums is None:
        return {}
    from packtrain.transfer.block_checksums import read_checksums

    return {"checksums": read_checksums(Path(given.checksums))}


def _manner() -> dict:
    return {"patience_s": 300.0, "stop": lambda: None, "progress": lambda done, total: None}


def _unpacked(given: SimpleNamespace) -> None:
    from packtrain.transfer.archive.unpack import unpack_stream
    from packtrain.transfer.ordered_download import Ordered

    given.o.mkdir(parents=True)
    name, quiet = Path(given.urls[0]).name, _manner()
    with Ordered(Item(name, tuple(Ref(url) for url in given.urls)), str, **quiet) as reader:
        quiet.pop("patience_s")
        unpack_stream(reader, name, given.o, nested=True, limit_bytes=None, **quiet)


if __name__ == "__main__":
    main()
