"""What a person at the terminal can do about a transfer that failed."""

from __future__ import annotations

from packtrain.errors import FailedError

_HINTS = {
    "object_missing": "check the address",
    "token_refused": "--token-env NAME or --token-file FILE sends a token",
    "not_the_data": "open the address in a browser; is a login or a token needed?",
    "digest_mismatch": "is the digest right, and is it of this version of the file?",
    "service_unavailable": "try again later, wait longer with --patience, or add a --mirror",
    "network_unreachable": "check the network and the address, or add a --mirror",
    "host_unknown": "check the address and this machine's name service",
    "sink_failed": "check the address, or try longer with --patience",
    "disk_full": "free room, or choose another disk with -o",
}


def hinted(error: FailedError) -> FailedError:
    """The same failure, with a hint behind it where there is one, once."""
    hint = _HINTS.get(error.kind)
    return FailedError(error.kind, f"{error.detail}; {hint}") if hint and not error.detail.endswith(hint) else error
