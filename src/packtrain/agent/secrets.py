"""Secrets on the worker: files in one folder, read anew for each use, since they may be renewed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packtrain.events import Redactor
from packtrain.plan import Secret, SecretOrStr
from packtrain.plan.secret_files import read_secret, read_secret_file


class Secrets:
    def __init__(self, folder: Path) -> None:
        """The redactor knows every value that lies in the folder now, and those that are revealed later."""
        self.folder = folder.absolute()
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        self.redactor = Redactor(read_secret_file(file) for file in files if file.is_file())

    def redact_condor_tokens(self, environ: Mapping[str, str]) -> None:
        """The tokens that HTCondor gives the job are not in the plan, but no more for others' eyes."""
        if environ.get("_CONDOR_CREDS"):
            from packtrain.transfer.bearer_tokens import read_condor_tokens

            for token in read_condor_tokens(environ):
                self.redactor.add_secret(token)

    def resolve_secret(self, text: SecretOrStr) -> str:
        """A text of the plan as it is to be used. Raises FailedError("secret_missing")."""
        if not isinstance(text, Secret):
            return text
        value = read_secret(self.folder, text.name)
        self.redactor.add_secret(value)
        return value
