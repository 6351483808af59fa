"""TLS contexts that verify servers, with the CA bundle of the environment or of the system."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from packtrain.errors import TransferError

if TYPE_CHECKING:
    import ssl

CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ssl_context_from_environ() -> ssl.SSLContext:
    """Return the context for this environment. Raises TransferError if its CA bundle cannot be read."""
    return _load_ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=4)
def _load_ssl_context(cafile: str | None, capath: str | None) -> ssl.SSLContext:
    import ssl

    if cafile or capath:
        try:
            return ssl.create_default_context(cafile=cafile or None, capath=capath or None)
        except OSError as error:
            message = f"the CA bundle {cafile or capath} of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}"
            raise TransferError("certificate_invalid", message) from error
    defaults = ssl.get_default_verify_paths()
    bundle = None if defaults.cafile or defaults.capath else next(filter(os.path.exists, CA_BUNDLES), None)
    return ssl.create_default_context(cafile=bundle)
