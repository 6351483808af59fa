"""What a person at the terminal can do about a transfer that failed."""

from __future__ import annotations

from packtrain.errors import FailedError

_HINT_BY_FAILURE_KIND = {
    "object_missing": "check the address",
    "access_denied": "--token-env NAME or --token-file FILE sends a token",
    "unexpected_content": "open the address in a browser; is a login or a token needed?",
    "digest_mismatch": "is the digest right, and is it of this version of the file?",
    "service_unavailable": "try again later, wait longer with --retry-timeout, or add a --mirror",
    "network_unreachable": "check the network and the address, or add a --mirror",
    "host_unknown": "check the address and this machine's name service",
    "upload_failed": "check the address, or try longer with --retry-timeout",
    "disk_full": "free room, or choose another disk with -o",
}


def add_hint(error: FailedError) -> FailedError:
    """The same failure, with a hint behind it where there is one, once."""
    hint = _HINT_BY_FAILURE_KIND.get(error.kind)
    return FailedError(error.kind, f"{error.detail}; {hint}") if hint and not error.detail.endswith(hint) else error
