"""The context in which a job is planned: its matrix point, folders and diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packtrain.pixi_workspace.environment import WorkspaceEnvironment
from packtrain.plan import Resources, RunFolder, SecretOrStr
from packtrain.planner.credentials.secret_sources import SecretRegistry
from packtrain.planner.modules.module_resolver import ModuleResolver
from packtrain.planner.pixi_workspaces import PixiWorkspaces
from packtrain.spec import placeholders
from packtrain.spec.diagnostics import DiagnosticReport, KeyPath
from packtrain.spec.models.workflow import Workflow
from packtrain.spec.secret_references import has_reference


@dataclass(frozen=True)
class PlanContext:
    """What all jobs of a plan share."""

    engine: str
    run_folder: RunFolder
    secret_registry: SecretRegistry
    modules: ModuleResolver
    workspaces: PixiWorkspaces
    no_container: bool = False
    no_gpu: bool = False


@dataclass(frozen=True)
class JobContext:
    """What the planning of one job needs."""

    plan_context: PlanContext
    report: DiagnosticReport  # for the file that is being planned: the workflow, or a module
    base_dir: Path  # the folder of that file
    template_values: Mapping[str, str]  # values of placeholders: job, run, name and the matrix point
    command_values: Mapping[str, str]  # those that are also replaced in commands
    resources: Resources
    workflow: Workflow
    has_container: bool = False  # whether `environment` has a container
    pixi: WorkspaceEnvironment | None = None

    def fill_placeholders(self, text: str) -> str:
        return placeholders.fill_placeholders(text, self.template_values)

    def fill_command(self, text: str) -> str:
        return placeholders.fill_placeholders(text, self.command_values)

    def register_secret(self, text: str, key_path: KeyPath, confidential: bool = True) -> SecretOrStr:
        """Return text, or a registered secret if it is confidential or contains a reference."""
        filled = self.fill_placeholders(text)
        if not confidential and not has_reference(filled):
            return filled
        return self.plan_context.secret_registry.register(filled, self.report.source_map, key_path)

    def register_optional_secret(
        self, text: str | None, key_path: KeyPath, confidential: bool = True
    ) -> SecretOrStr | None:
        return None if text is None else self.register_secret(text, key_path, confidential)

    def for_module(self, report: DiagnosticReport, base_dir: Path) -> JobContext:
        """Return the context of a module's file."""
        return replace(self, report=report, base_dir=base_dir)
