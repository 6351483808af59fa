"""Secrets on the worker: files in one folder, read again for each use, because they may be renewed."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packtrain.events import Redactor
from packtrain.plan import Secret, SecretOrStr
from packtrain.plan.secret_files import INHERITED_VARIABLES, read_inherited_variables, read_secret, read_secret_file

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET_CHARS = 8


class Secrets:
    """Resolves secrets of the plan. Its `redactor` hides the values in the folder and every value resolved later."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        self.redactor = Redactor(
            read_secret_file(file) for file in files if file.is_file() and file.name != INHERITED_VARIABLES
        )

    def redact_condor_tokens(self, environ: Mapping[str, str]) -> None:
        """Also hide the tokens that HTCondor gives the job, which are not in the folder of secrets."""
        if environ.get("_CONDOR_CREDS"):
            from packtrain.transfer.credentials import read_condor_tokens

            for token in read_condor_tokens(environ):
                self.redactor.add_secret(token)

    def read_inherited(self, patterns: Sequence[str]) -> dict[str, str]:
        """Return the variables of the submitting shell that match the patterns. Values of secret ones are redacted.

        Raises FailedError("secret_missing").
        """
        if not patterns:
            return {}
        variables = {
            name: value
            for name, value in read_inherited_variables(self.folder).items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        }
        for name, value in variables.items():
            if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET_CHARS:
                self.redactor.add_secret(value)
        return variables

    def resolve_secret(self, text: SecretOrStr) -> str:
        """Return a text of the plan, or the value of the secret it names. Raises FailedError("secret_missing")."""
        if not isinstance(text, Secret):
            return text
        value = read_secret(self.folder, text.name)
        self.redactor.add_secret(value)
        return value
