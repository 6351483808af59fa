"""URLs as text: redact secrets, join names, compare origins."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, unquote, urlsplit

from packtrain.errors import TransferError, UsageError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_FEDERATED_SCHEMES = frozenset({"osdf", "pelican"})
_UNENCODED_SCHEMES = frozenset({"s3"})  # keys are written verbatim, not percent-encoded


def url_scheme(url: str) -> str:
    """Return the scheme in lower case, or the whole text if there is none."""
    return url.partition(":")[0].lower()


def is_federated(url: str) -> bool:
    """Return whether the URL is of an object in a Pelican federation such as the OSDF."""
    return url_scheme(url) in _FEDERATED_SCHEMES


def is_http(url: str) -> bool:
    """Return whether the scheme is http or https: such a URL names one object, and nothing can be listed below it."""
    return url_scheme(url) in _DEFAULT_PORTS


def redact_url(url: str) -> str:
    """Return the URL without user, password, query (which may hold signatures) and fragment, for messages."""
    if url_scheme(url) in _UNENCODED_SCHEMES:
        return url
    head, slashes, rest = url.partition("//")
    before, question_mark, _ = rest.partition("?")
    before = before.partition("#")[0]
    host, slash, path = before.partition("/")
    return f"{head}{slashes}{host.rpartition('@')[2]}{slash}{path}{'?…' if question_mark else ''}"


def host_label(url: str) -> str:
    """Return host and port for display, or the redacted URL if it has no host."""
    redacted = redact_url(url)
    return urlsplit(redacted).netloc or redacted


def join_url(url: str, name: str) -> str:
    """Append a name to the path of a URL, before its query; an empty name returns the URL itself."""
    if not name:
        return url
    if url_scheme(url) in _UNENCODED_SCHEMES:
        return f"{url.rstrip('/')}/{name}"
    end = _find_path_end(url)
    return f"{url[:end].rstrip('/')}/{quote(name)}{url[end:]}"


def append_to_url_path(url: str, suffix: str) -> str:
    """Append a suffix to the last name in the path of a URL, before its query and fragment."""
    end = _find_path_end(url)
    return f"{url[:end]}{quote(suffix)}{url[end:]}"


def _find_path_end(url: str) -> int:
    return min(index for index in (url.find("?"), url.find("#"), len(url)) if index >= 0)


def url_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port: what a credential is bound to."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def invalid_url_error(url: str, error: ValueError) -> TransferError:
    """Return the error for a URL whose host or port is malformed."""
    return TransferError(
        "unsupported", f"{redact_url(url)} is not a valid address ({error}); correct it", redact_url(url)
    )


def path_from_file_url(url: str) -> str:
    """Return the decoded path of a file:// URL."""
    return unquote(urlsplit(url).path)


def check_listed_name(name: str, url: str) -> str:
    """Return a name that a server lists, which becomes a path on disk.

    Raises:
        TransferError: The path would leave the target folder ("archive_unsafe").
    """
    if not name or name.startswith("/") or "\0" in name or {"..", ".", ""} & set(name.split("/")):
        raise TransferError(
            "archive_unsafe", f"{redact_url(url)} lists the name {name!r}, which leaves the folder", redact_url(url)
        )
    return name


def filename_from_url(url: str) -> str:
    """Return the last name in the path of a URL, safe as a file name; "data" if there is none."""
    try:
        last = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
    except ValueError as error:
        raise invalid_url_error(url, error) from error
    safe = last.replace("/", "_").replace("\0", "_")
    return safe if safe not in ("", ".", "..") else "data"


def is_folder_url(url: str) -> bool:
    """Return whether an osdf or pelican URL means everything below it."""
    path, _, flags = url.partition("?")
    return path.endswith("/") or "recursive" in parse_qs(flags, keep_blank_values=True)


def refers_to_folder(url: str) -> bool:
    """Return whether a URL means all files below it: it ends in /, or has `?recursive` in a federation."""
    return url.endswith("/") or (is_federated(url) and is_folder_url(url))


def reject_pack_query(url: str, advice: str) -> None:
    """Raise UsageError for `?pack=`, which only Pelican's own client implements."""
    if is_federated(url) and "pack" in parse_qs(url.partition("?")[2], keep_blank_values=True):
        raise UsageError(f"{redact_url(url)}: remove `pack=` from the URL; {advice}")


def normalize_osdf_url(url: str) -> str:
    """Convert osdf://nrp/x to osdf:///nrp/x: there is one OSDF federation, so the URL has no host."""
    return "osdf:///" + url[len("osdf://") :].lstrip("/") if url.startswith("osdf://") else url
