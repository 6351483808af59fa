"""AWS Signature Version 4, by hand and pure: the same request and moment give the same headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_ALGORITHM = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Keys:
    access: str
    secret: str
    session: str | None = None


def signed_headers(
    method: str, url: str, headers: Mapping[str, str], payload: str, keys: Keys, region: str, moment: str
) -> dict[str, str]:
    """The headers to add. `payload` is the body's sha256, `moment` like 20240131T235959Z."""
    added = {"X-Amz-Date": moment, "X-Amz-Content-SHA256": payload}
    if keys.session:
        added["X-Amz-Security-Token"] = keys.session
    covered = {name.lower(): " ".join(value.split()) for name, value in {**headers, **added}.items()}
    covered["host"] = _host(url)
    names = ";".join(sorted(covered))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, moment, scope, _sha256(_canonical(method, url, covered, payload))))
    signature = _hmac(_signing_key(keys.secret, moment[:8], region), text).hex()
    credential = f"{keys.access}/{scope}"
    added["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return added


def _canonical(method: str, url: str, covered: Mapping[str, str], payload: str) -> str:
    parts = urlsplit(url)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    query = "&".join(f"{key}={value}" for key, value in pairs)
    lines = "".join(f"{name}:{covered[name]}\n" for name in sorted(covered))
    return "\n".join((method, parts.path or "/", query, lines, ";".join(sorted(covered)), payload))


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    default = f":{_DEFAULT_PORTS.get(parts.scheme)}"
    return host[: -len(default)] if host.endswith(default) else host


def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for word in (day, region, "s3", "aws4_request"):
        key = _hmac(key, word)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    import hmac

    return hmac.digest(key, text.encode(), "sha256")


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
