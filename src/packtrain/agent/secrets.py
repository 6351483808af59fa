"""Secrets on the worker: files in one folder, read anew for each use, since they may be renewed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.events import Redactor
from packtrain.plan import Secret, Text


class Secrets:
    def __init__(self, folder: Path) -> None:
        """The redactor knows every value that lies in the folder now, and those that are revealed later."""
        self.folder = folder.absolute()
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        self.redactor = Redactor(_value(file) for file in files if file.is_file())

    def learn(self, environ: Mapping[str, str]) -> None:
        """The tokens that HTCondor gives the job are not in the plan, but no more for others' eyes."""
        if environ.get("_CONDOR_CREDS"):
            from packtrain.transfer.tokens import given_tokens

            for token in given_tokens(environ):
                self.redactor.learn(token)

    def reveal(self, text: Text) -> str:
        """A text of the plan as it is to be used. Raises FailedError("secret_missing")."""
        if not isinstance(text, Secret):
            return text
        value = self._read(text.name)
        self.redactor.learn(value)
        return value

    def _read(self, name: str) -> str:
        try:
            return _value(self.folder / Path(name).name)
        except OSError as error:
            reason = error.strerror or str(error)
            raise FailedError("secret_missing", f"the secret {name!r} cannot be read: {reason}") from error


def _value(file: Path) -> str:
    text = file.read_bytes().decode("utf-8", "surrogateescape")
    return text[:-1] if text.endswith("\n") else text
