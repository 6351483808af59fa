"""The bearer token of whoever runs this, looked for where Pelican's own client looks, in its order.

Read anew each time: HTCondor and others renew these files under a running job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from packtrain.errors import FailedError

_CONDOR_CREDS = ".condor_creds"  # in the job's folder, where _CONDOR_CREDS does not name another
_PREFERRED = "scitokens.use"


def own_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The first that is there; None if there is none."""
    given = environ.get("BEARER_TOKEN", "").strip()
    return given or next(filter(None, map(_read, _files(environ))), None)


def given_tokens(environ: Mapping[str, str] = os.environ) -> list[str]:
    """All that HTCondor gives the job, by whatever name."""
    return list(filter(None, map(_read, sorted(_creds(environ).glob("*.use")))))


def named_token(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Of the service (and handle) that an address names, as in chtc.mine+https://…; raises FailedError."""
    file = credential_file(name, environ)
    token = _read(file)
    if token is None:
        words = f"there is no token in {file.name} of the job's credentials: name the service in `use_oauth_services`"
        raise FailedError("secret_missing", words)
    return token


def credential_file(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """HTCondor writes SERVICE.HANDLE as SERVICE_HANDLE."""
    return _creds(environ) / f"{name.replace('.', '_').replace('/', '_')}.use"


def _creds(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("_CONDOR_CREDS") or _CONDOR_CREDS)


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    name = f"bt_u{os.getuid()}"
    if environ.get("BEARER_TOKEN_FILE"):
        yield Path(environ["BEARER_TOKEN_FILE"])
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"], name)
    yield Path("/tmp", name)  # noqa: S108 - where the WLCG's rules put it
    if environ.get("TOKEN"):
        yield Path(environ["TOKEN"])
    creds = _creds(environ)
    yield creds / _PREFERRED
    yield from sorted(creds.glob("*.use"))


def _read(path: Path) -> str | None:
    """None for what cannot be read, or is no token. HTCondor wraps some in JSON."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        return str(json.loads(text)["access_token"]) if text.startswith("{") else text or None
    except (OSError, ValueError, KeyError, RecursionError):
        return None
