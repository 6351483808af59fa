"""The bearer token of whoever runs this, looked for where Pelican's own client looks, in its order.

Read anew each time: HTCondor and others renew these files under a running job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_CONDOR_CREDS = ".condor_creds"  # in the job's folder, where _CONDOR_CREDS does not name another
_PREFERRED = "scitokens.use"


def own_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The first that is there; None if there is none."""
    given = environ.get("BEARER_TOKEN", "").strip()
    return given or next(filter(None, map(_read, _files(environ))), None)


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    name = f"bt_u{os.getuid()}"
    if environ.get("BEARER_TOKEN_FILE"):
        yield Path(environ["BEARER_TOKEN_FILE"])
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"], name)
    yield Path("/tmp", name)  # noqa: S108 - where the WLCG's rules put it
    if environ.get("TOKEN"):
        yield Path(environ["TOKEN"])
    creds = Path(environ.get("_CONDOR_CREDS") or _CONDOR_CREDS)
    yield creds / _PREFERRED
    yield from sorted(creds.glob("*.use"))


def _read(path: Path) -> str | None:
    """None for what cannot be read, or is no token. HTCondor wraps some in JSON."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        return str(json.loads(text)["access_token"]) if text.startswith("{") else text or None
    except (OSError, ValueError, KeyError):
        return None
