"""What surrounds the planning of one job: its matrix point, its folder, and where problems go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packtrain.plan import Resources, RunFolder, Text
from packtrain.planner.module_resolver import Modules
from packtrain.planner.secret_sources import Vault
from packtrain.spec import placeholders
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.diagnostics import Report
from packtrain.spec.secret_references import has_reference


@dataclass(frozen=True)
class Setting:
    """The same for all jobs of a plan."""

    engine: str
    run_folder: RunFolder
    vault: Vault
    modules: Modules
    no_container: bool = False
    no_gpu: bool = False


@dataclass(frozen=True)
class JobContext:
    setting: Setting
    report: Report  # of the file that is being planned: the workflow, or a module
    where: Path  # that file's folder
    values: Mapping[str, str]  # for templates: job, run, name and the matrix point
    in_commands: Mapping[str, str]  # those of them that are filled into commands, too
    resources: Resources
    has_container: bool = False  # whether `environment` gives one to commands without their own

    def fill(self, text: str) -> str:
        return placeholders.fill(text, self.values)

    def command(self, text: str) -> str:
        return placeholders.fill(text, self.in_commands)

    def secret(self, text: str, keys: Keys, confidential: bool = True) -> Text:
        """A name in the vault for what is secret; other text as it is."""
        filled = self.fill(text)
        if not confidential and not has_reference(filled):
            return filled
        return self.setting.vault.put(filled, self.report.origin, keys)

    def secret_or_none(self, text: str | None, keys: Keys, confidential: bool = True) -> Text | None:
        return None if text is None else self.secret(text, keys, confidential)

    def inside(self, report: Report, where: Path) -> JobContext:
        """The context of a module's file."""
        return replace(self, report=report, where=where)
