"""Find the user's bearer token where Pelican's own client looks, and remember which hosts accepted credentials.

Tokens are read for each use, because HTCondor and others renew these files while a job runs.

Anyone can run a federation and choose the issuers that it trusts. A token that was found, not configured, is therefore
sent to the OSDF, and to other federations only if the token itself names them.

A host that accepted our credentials before and now answers 401 or 403 has most likely seen an expired token. Such a
refusal is retried, because the token may be renewed; a refusal by any other host is final.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from packtrain.errors import FailedError
from packtrain.plan import Location

OSDF_FEDERATION = "osg-htc.org"
_DEFAULT_CREDENTIALS_DIR = ".condor_creds"  # in the job's folder, unless _CONDOR_CREDS names another one
_PREFERRED_CREDENTIAL = "scitokens.use"
AUTHORIZED_HOSTS: set[str] = set()  # hosts that accepted credentials of this process; labels of `urls.host_label`


def has_credentials(location: Location) -> bool:
    """Return whether requests to the location carry a token, a signature or headers of the user."""
    signed = location.s3 is not None and location.s3.access_key is not None
    return signed or location.token is not None or bool(location.headers)


def find_token(federation: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the first token that may be sent to this federation, or None."""
    return next((token for token in _iter_tokens(environ) if _is_meant_for(token, federation)), None)


def explain_withheld_token(federation: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return why none of the tokens found may be sent to the federation, or ""."""
    if find_token(federation, environ) is not None or not any(_iter_tokens(environ)):
        return ""
    return (
        f"a token was found on this machine, but it does not name {federation} as its issuer or audience; "
        "to send it there, configure it in the workflow, with --token-env or --token-file, or as SERVICE+pelican://"
    )


def _is_meant_for(token: str, federation: str) -> bool:
    """Return whether the token's (unverified) claims name the federation."""
    host = _parse_host(federation)
    if host == OSDF_FEDERATION:
        return True
    claims = _parse_claims(token)
    audience = claims.get("aud")
    names = [claims.get("iss"), *(audience if isinstance(audience, list) else [audience])]
    return bool(host) and host in [_parse_host(name) for name in names if isinstance(name, str)]


def _parse_host(name: str) -> str:
    try:
        return urlsplit(name if "://" in name else f"//{name}").hostname or ""
    except ValueError:
        return ""


def _parse_claims(token: str) -> dict[str, object]:
    """Return the claims of a JWT, or {} for other tokens."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims if isinstance(claims, dict) else {}
    except (ValueError, RecursionError):
        return {}


def token_expires_at(token: str) -> float | None:
    """Return when the token expires (Unix time), or None if it does not state it."""
    expires_at = _parse_claims(token).get("exp")
    return float(expires_at) if type(expires_at) in (int, float) else None  # type: ignore[arg-type]


def read_condor_tokens(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return all tokens that HTCondor provides to the job."""
    return list(filter(None, map(read_token, sorted(_credentials_dir(environ).glob("*.use")))))


def read_service_token(service: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the token of a service (and handle), as in chtc.mine+https://…. Raises FailedError."""
    file = credential_path(service, environ)
    token = read_token(file)
    if token is None:
        message = f"the job's credentials have no token {file.name}; name the service in `use_oauth_services`"
        raise FailedError("secret_missing", message)
    return token


def credential_path(service: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a credential; HTCondor writes SERVICE.HANDLE as SERVICE_HANDLE."""
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
    yield Path("/tmp", name)  # noqa: S108 - the location of WLCG bearer token discovery
    if environ.get("TOKEN"):
        yield Path(environ["TOKEN"])
    creds = _credentials_dir(environ)
    yield creds / _PREFERRED_CREDENTIAL
    yield from sorted(creds.glob("*.use"))


def read_token(path: Path) -> str | None:
    """Return the token in a file (plain, or in HTCondor's JSON), or None if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        return str(json.loads(text)["access_token"]) if text.startswith("{") else text or None
    except (OSError, ValueError, KeyError, RecursionError):
        return None
