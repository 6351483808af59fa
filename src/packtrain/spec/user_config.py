"""The optional user configuration: ~/.config/packtrain/config.yaml, or the file named by $PACKTRAIN_CONFIG."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from packtrain.errors import UsageError
from packtrain.spec import validation_messages, yaml_loader
from packtrain.spec.diagnostics import DiagnosticReport
from packtrain.spec.model_walk import walk_models
from packtrain.spec.models.field_types import (
    Bytes,
    Megabytes,
    PositiveInt,
    SbatchOption,
    Seconds,
    SpecModel,
    Str,
    StrOrEmpty,
    VersionNumber,
)


class HtcondorConfig(SpecModel):
    """Defaults for runs on HTCondor."""

    project: Str = ""
    """The project of the jobs (+ProjectName)."""
    duration_category: Str = ""
    """The duration category (+JobDurationCategory), e.g. Long; default: from limits.wallTime, if set."""
    job_lease_duration: Seconds = 6 * 3600.0
    """How long a job continues without contact to the access point (job_lease_duration)."""
    max_jobs: PositiveInt = 5000
    """Maximum number of jobs of a run in the queue at once; others follow as these end."""
    max_idle: PositiveInt = 1000
    """Maximum number of them that wait for a node."""
    max_executions: PositiveInt = 10
    """Maximum number of executions of one attempt before it is held."""
    submit_commands: dict[Str, StrOrEmpty] = Field(default_factory=dict)
    """Further submit commands for every run; those in a workflow's `htcondor` take precedence."""


class GpuProperties(SpecModel):
    """What the GPUs of some nodes offer."""

    memory: Megabytes | None = None
    """Memory of each GPU, e.g. 40GB."""
    capability: VersionNumber | None = None
    """CUDA compute capability, e.g. 8.0."""
    driver: VersionNumber | None = None
    """Version of the NVIDIA driver, e.g. 535.104."""
    cuda: VersionNumber | None = None
    """CUDA version that the driver supports, e.g. 12.2."""


class SlurmSupervisorConfig(SpecModel):
    """The job that supervises a run (`--detach=job`)."""

    partition: Str = ""
    """Its partition; default: that of `slurm.options`, or the cluster's."""
    time: Seconds = 12 * 3600.0
    """Its time limit; it requeues itself before."""
    options: dict[SbatchOption, StrOrEmpty] = Field(default_factory=dict)
    """Further sbatch options of it."""


class SlurmConfig(SpecModel):
    """Defaults for runs on Slurm: how the cluster differs from others."""

    options: dict[SbatchOption, StrOrEmpty] = Field(default_factory=dict)
    """sbatch options for every run, e.g. partition and account; those in a workflow's `slurm` take precedence."""
    constraints: dict[Str, GpuProperties] = Field(default_factory=dict)
    """What the GPUs of nodes with a feature offer. Chooses --constraint for the `resources.gpu` of a workflow."""
    memory: bool = True
    """Request memory (--mem-per-cpu); false where the site refuses it."""
    gpu_option: Literal["auto", "gpus-per-node", "gres"] = "auto"
    """How to request GPUs; auto: --gres where the cluster lacks select/cons_tres."""
    requeue: bool = True
    """Let Slurm restart preempted jobs and those of lost nodes (--requeue); false where the site forbids it."""
    scratch: Str = ""
    """Folder for sandboxes on the node's disk, e.g. /local/$USER; default: $SLURM_TMPDIR, $TMPDIR or /tmp."""
    cache: Str = ""
    """Download cache of the jobs on a disk that the nodes share; without one each job fetches its inputs."""
    cache_limit: Bytes | None = None
    """Maximum size of that cache."""
    query_interval: Seconds = 10.0
    """Minimum time between two queries of the queue; three times as long above 1,000 jobs."""
    supervisor: SlurmSupervisorConfig = SlurmSupervisorConfig()
    """The job that supervises a run (`--detach=job`)."""


class UserConfig(SpecModel):
    """The keys of the file."""

    htcondor: HtcondorConfig = HtcondorConfig()
    """Defaults for runs on HTCondor."""
    slurm: SlurmConfig = SlurmConfig()
    """Defaults for runs on Slurm."""


def user_config_path() -> Path:
    """Return the path of the user configuration."""
    configured = os.environ.get("PACKTRAIN_CONFIG")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "packtrain" / "config.yaml"


def load_user_config(path: Path | None = None) -> UserConfig:
    """Return the configuration, or the defaults if there is no file. Raises UsageError with the first error."""
    config_path = path or user_config_path()
    try:
        text = config_path.read_bytes()
    except FileNotFoundError:
        return UserConfig()
    except OSError as error:
        raise UsageError(f"the configuration {config_path} cannot be read: {error.strerror}") from None
    if not any(line.split(b"#")[0].strip() for line in text.splitlines()):
        return UserConfig()
    document = yaml_loader.parse_yaml(text, str(config_path))
    report = DiagnosticReport(document.source_map)
    report.extend(document.diagnostics)
    try:
        config = UserConfig.model_validate(document.value or {}) if not report.has_errors else UserConfig()
    except ValidationError as error:
        models = {node.path: node.model for node in walk_models(UserConfig, document.value)}
        validation_messages.report_validation_errors(error.errors(), models, report)
    if report.has_errors:
        raise UsageError(str(next(diagnostic for diagnostic in report.diagnostics if diagnostic.is_error)))
    return config
