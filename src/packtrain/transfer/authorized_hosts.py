"""Hosts that have accepted credentials of this process.

A host that accepted our credentials before and now answers 401 or 403 has most likely seen an expired token. HTCondor
and others renew tokens under a running job, so such a refusal is retried; a refusal by any other host is final.
"""

from __future__ import annotations

from packtrain.plan import Location

AUTHORIZED_HOSTS: set[str] = set()  # host labels, see `urls.host_label`


def has_credentials(location: Location) -> bool:
    """Return whether requests to the location carry a token, a signature or headers of the user."""
    signed = location.s3 is not None and location.s3.access_key is not None
    return signed or location.token is not None or bool(location.headers)
