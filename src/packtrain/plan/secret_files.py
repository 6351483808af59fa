"""The files of the run's `secrets/` folder that agents read: one for each secret, and one with inherited variables.

They are read for each use, because they may be renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.fileutil import atomic_write

INHERITED_VARIABLES = "inherited-variables"
"""The file with the variables of the shell in which packtrain was called: NAME=VALUE, each ended by a zero byte."""
# Variables of the session or job in which packtrain was called.
_NOT_INHERITED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "PMI_", "PMIX_", "PACKTRAIN_", "_=", "SHLVL=", "OLDPWD=")


def read_secret_file(path: Path) -> str:
    """Return the content of a secret file without its final newline."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return text[:-1] if text.endswith("\n") else text


def read_secret(folder: Path, name: str) -> str:
    """Return the secret `name`. Raises FailedError("secret_missing")."""
    try:
        return read_secret_file(folder / Path(name).name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FailedError("secret_missing", f"the secret {name!r} cannot be read: {reason}") from error


def write_inherited_variables(folder: Path, environ: Mapping[str, str]) -> None:
    """Store the variables of the shell in which packtrain was called, without those of a job that it runs in."""
    folder.mkdir(mode=0o700, exist_ok=True)
    entries = (f"{name}={value}" for name, value in environ.items())
    text = "".join(f"{entry}\0" for entry in entries if not entry.startswith(_NOT_INHERITED))
    atomic_write(folder / INHERITED_VARIABLES, text.encode("utf-8", "surrogateescape"), mode=0o600)


def read_inherited_variables(folder: Path) -> dict[str, str]:
    """Return the stored variables. Raises FailedError("secret_missing")."""
    text = read_secret(folder, INHERITED_VARIABLES)
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)
