"""Addresses as text: shown without secrets, joined with names, compared by origin."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, unquote, urlsplit

from packtrain.errors import TransferError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNENCODED_SCHEMES = frozenset({"s3"})  # their keys are written as they are, not percent-encoded


def url_scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def redact_url(url: str) -> str:
    """The address as messages may show it: without user, password, query (signatures!) and fragment."""
    if url_scheme(url) in _UNENCODED_SCHEMES:
        return url
    head, slashes, rest = url.partition("//")
    before, mark, _ = rest.partition("?")
    before = before.partition("#")[0]
    host, slash, path = before.partition("/")
    return f"{head}{slashes}{host.rpartition('@')[2]}{slash}{path}{'?…' if mark else ''}"


def join_url(url: str, name: str) -> str:
    """The address of a name below an address, before its query; an empty name is the address itself."""
    if not name:
        return url
    if url_scheme(url) in _UNENCODED_SCHEMES:
        return f"{url.rstrip('/')}/{name}"
    end = _find_path_end(url)
    return f"{url[:end].rstrip('/')}/{quote(name)}{url[end:]}"


def append_to_url_path(url: str, suffix: str) -> str:
    """The address of a sibling: the ending belongs to the path, not to the query or fragment."""
    end = _find_path_end(url)
    return f"{url[:end]}{quote(suffix)}{url[end:]}"


def _find_path_end(url: str) -> int:
    return min(at for at in (url.find("?"), url.find("#"), len(url)) if at >= 0)


def url_origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what a credential is bound to."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def invalid_url_error(url: str, error: ValueError) -> TransferError:
    """Of an address whose host or port cannot be."""
    return TransferError("unsupported", f"{redact_url(url)} is no valid address ({error}): correct it", redact_url(url))


def path_from_file_url(url: str) -> str:
    """The decoded path of a file:// address."""
    return unquote(urlsplit(url).path)


def check_listed_name(name: str, url: str) -> str:
    """A listed name becomes a path on our disk: one that leaves the folder is refused."""
    if not name or name.startswith("/") or "\0" in name or {"..", ".", ""} & set(name.split("/")):
        raise TransferError(
            "archive_unsafe", f"{redact_url(url)} lists the name {name!r}, which leaves the folder", redact_url(url)
        )
    return name


def filename_from_url(url: str) -> str:
    """The file name in an address."""
    try:
        last = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
    except ValueError as error:
        raise invalid_url_error(url, error) from error
    safe = last.replace("/", "_").replace("\0", "_")
    return safe if safe not in ("", ".", "..") else "data"


def is_folder_url(url: str) -> bool:
    """Of an osdf or pelican address: whether it means all below it."""
    path, _, flags = url.partition("?")
    return path.endswith("/") or "recursive" in parse_qs(flags, keep_blank_values=True)


def normalize_osdf_url(url: str) -> str:
    """osdf://nrp/x means the path /nrp/x: there is one federation of that name, and no host."""
    return "osdf:///" + url[len("osdf://") :].lstrip("/") if url.startswith("osdf://") else url
