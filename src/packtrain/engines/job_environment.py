"""The environment variables that a job gets from the user's shell.

A job gets only variables that it would also have on a pool, so that a job that works on one engine works on the others,
and no secret of the user's shell reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY"}
    | {"NO_PROXY", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"}  # without APPTAINER_DOCKER_PASSWORD
)
_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "PACKTRAIN_PYTHON")


def job_environment(user_env: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables that a job may have. The engine sets CUDA_VISIBLE_DEVICES itself."""
    return {
        name: value
        for name, value in user_env.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name != "CUDA_VISIBLE_DEVICES"
    }
