"""The bearer token of whoever runs this, looked for where Pelican's own client looks, in its order.

Read anew each time: HTCondor and others renew these files under a running job.

Anybody can run a federation, and say of it what they like: which issuers it trusts, too. So a token that was found, not
named, goes to the OSDF, and elsewhere only if it says itself that it is meant for there.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from packtrain.errors import FailedError

OSDF_FEDERATION = "osg-htc.org"
_DEFAULT_CREDENTIALS_DIR = ".condor_creds"  # in the job's folder, where _CONDOR_CREDS does not name another
_PREFERRED_CREDENTIAL = "scitokens.use"


def find_token(federation: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The first that may be sent to this federation; None if there is none."""
    return next((token for token in _iter_tokens(environ) if _is_meant_for(token, federation)), None)


def explain_withheld_token(federation: str, environ: Mapping[str, str] = os.environ) -> str:
    """Why there is no token for a federation although some were found; else nothing."""
    if find_token(federation, environ) is not None or not any(_iter_tokens(environ)):
        return ""
    return (
        f"a token was found on this machine, but it does not say that it is meant for {federation}: "
        "to send it there, name it in the workflow, with --token-env or --token-file, or as SERVICE+pelican://"
    )


def _is_meant_for(token: str, federation: str) -> bool:
    """Unverified: a token that lies about itself harms only who made it."""
    host = _parse_host(federation)
    if host == OSDF_FEDERATION:
        return True
    claims = _parse_claims(token)
    meant = claims.get("aud")
    named = [claims.get("iss"), *(meant if isinstance(meant, list) else [meant])]
    return bool(host) and host in [_parse_host(name) for name in named if isinstance(name, str)]


def _parse_host(name: str) -> str:
    try:
        return urlsplit(name if "://" in name else f"//{name}").hostname or ""
    except ValueError:
        return ""


def _parse_claims(token: str) -> dict[str, object]:
    """What a JWT says of itself; nothing for tokens of other kinds."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return found if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        return {}


def token_expires_at(token: str) -> float | None:
    """When it runs out, by its own words; None: it does not say."""
    said = _parse_claims(token).get("exp")
    return float(said) if type(said) in (int, float) else None  # type: ignore[arg-type]


def read_condor_tokens(environ: Mapping[str, str] = os.environ) -> list[str]:
    """All that HTCondor gives the job, by whatever name."""
    return list(filter(None, map(read_token, sorted(_credentials_dir(environ).glob("*.use")))))


def read_service_token(service: str, environ: Mapping[str, str] = os.environ) -> str:
    """Of the service (and handle) that an address names, as in chtc.mine+https://…; raises FailedError."""
    file = credential_path(service, environ)
    token = read_token(file)
    if token is None:
        words = f"there is no token in {file.name} of the job's credentials: name the service in `use_oauth_services`"
        raise FailedError("secret_missing", words)
    return token


def credential_path(service: str, environ: Mapping[str, str] = os.environ) -> Path:
    """HTCondor writes SERVICE.HANDLE as SERVICE_HANDLE."""
    return _credentials_dir(environ) / f"{service.replace('.', '_').replace('/', '_')}.use"


def _iter_tokens(environ: Mapping[str, str]) -> Iterator[str]:
    yield from filter(None, (environ.get("BEARER_TOKEN", "").strip(), *map(read_token, _iter_token_files(environ))))


def _credentials_dir(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("_CONDOR_CREDS") or _DEFAULT_CREDENTIALS_DIR)


def _iter_token_files(environ: Mapping[str, str]) -> Iterator[Path]:
    name = f"bt_u{os.getuid()}"
    if environ.get("BEARER_TOKEN_FILE"):
        yield Path(environ["BEARER_TOKEN_FILE"])
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"], name)
    yield Path("/tmp", name)  # noqa: S108 - where the WLCG's rules put it
    if environ.get("TOKEN"):
        yield Path(environ["TOKEN"])
    creds = _credentials_dir(environ)
    yield creds / _PREFERRED_CREDENTIAL
    yield from sorted(creds.glob("*.use"))


def read_token(path: Path) -> str | None:
    """None for what cannot be read, or is no token. HTCondor wraps some in JSON."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        return str(json.loads(text)["access_token"]) if text.startswith("{") else text or None
    except (OSError, ValueError, KeyError, RecursionError):
        return None
