"""What a submit file says about its jobs, key by key, with problems told at the key's line."""

from __future__ import annotations

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.context import Around
from packtrain.condor.submitfile.description import Description, Setting
from packtrain.condor.submitfile.job_table import Jobs
from packtrain.condor.submitfile.macros import MacroError
from packtrain.spec.diagnostics import ERROR, WARNING, Origin, Path, Place, Report

_TRUE, _FALSE = ("true", "yes", "t", "1"), ("false", "no", "f", "0", "")


class Told:
    def __init__(self, description: Description, around: Around) -> None:
        self.description, self.around = description, around
        self.jobs = Jobs(description, around.environment)
        self.report = Report(Origin(description.name))
        self._settings = {commands.canonical(name): setting for name, setting in description.settings.items()}

    def has(self, key: str) -> bool:
        return key in self._settings and bool(self._settings[key].value.strip())

    def setting(self, key: str) -> Setting | None:
        return self._settings.get(key)

    def place(self, key: str) -> Place:
        found = self._settings.get(key)
        return Place(found.line if found else 1)

    def raw(self, key: str) -> str:
        found = self._settings.get(key)
        return found.value if found else ""

    def template(self, key: str) -> str:
        """With marks for what differs from job to job."""
        if "$$(" in self.raw(key):
            message = f"{key}: $$(…) is known only when HTCondor has found a machine, too late for packtrain's plan"
            self.error(key, message, "the job can read it from the file $_CONDOR_MACHINE_AD")
        try:
            return self.jobs.template(self.raw(key)).strip()
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def fixed(self, key: str) -> str:
        """What has to be the same for all jobs."""
        found = self.template(key)
        if self.jobs.differ(found):
            self.error(key, f"{key} differs from job to job, which packtrain cannot do", "make several submit files")
        return self.jobs.of_each(found)[0]

    def flag(self, key: str, default: bool) -> bool:
        text = self.fixed(key).lower()
        if key not in self._settings or not text:
            return default
        if text not in _TRUE + _FALSE:
            self.error(key, f"{key} should be true or false, but is {text[:40]!r}")
        return text in _TRUE

    def braces(self, key: str, template: str) -> str:
        try:
            return self.jobs.braces(template)
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def error(self, key: str, message: str, hint: str = "") -> None:
        self.report.add(self.place(key), ERROR, message, hint)

    def warning(self, key: str, message: str, hint: str = "") -> None:
        self.report.add(self.place(key), WARNING, message, hint)


class Draft:
    """The workflow's document as it grows, with the line of the submit file that each part comes from."""

    def __init__(self) -> None:
        self.value: dict[str, object] = {}
        self.places: dict[Path, Place] = {}

    def put(self, path: tuple[str, ...], value: object, place: Place) -> None:
        """Set a key below mappings, which are made where they are missing."""
        inside = self.value
        for depth, key in enumerate(path[:-1], 1):
            below = inside.setdefault(key, {})
            assert isinstance(below, dict)
            inside = below
            self.places.setdefault(path[:depth], place)
        inside[path[-1]] = value
        self.places[path] = place

    def origin(self, name: str) -> Origin:
        return Origin(name, self.places, self.places)
