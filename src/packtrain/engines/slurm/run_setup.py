"""Makes the settings of a new run from the user's settings and the cluster, and checks the plan against them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.sbatch_options import RESERVED_OPTIONS, choose_constraint, merge_options
from packtrain.plan import EnvVar, Job, Plan
from packtrain.slurm.cluster_config import ClusterConfig
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.user_config import SlurmConfig
from packtrain.state.site_history import EMPTY_HISTORY, SiteHistory

_MIB = 1 << 20
_DISK_MARGIN_MB = 1024  # for outputs, logs and the agent
_NODE_OPTIONS = ("constraint", "nodelist", "nodefile")  # with which the user chooses the nodes


@dataclass(frozen=True)
class RunSetup:
    """The settings of a run, and what is wrong with them."""

    settings: RunSettings
    problems: tuple[Diagnostic, ...]


def set_up_run(
    plan: Plan,
    config: SlurmConfig,
    cluster: ClusterConfig,
    disk_bytes: int | None = None,
    site_history: SiteHistory = EMPTY_HISTORY,
    origin: SourceMap | None = None,
) -> RunSetup:
    """Return the settings of a new run, and what Slurm or the engine would reject.

    Args:
        plan: The plan of the run.
        config: The user's settings. Options of the workflow come after those of the user, so that they win.
        cluster: The configuration of the cluster.
        disk_bytes: The estimated size of inputs and outputs of one job, or None if unknown.
        site_history: What earlier runs learned about nodes.
        origin: Positions of the keys in the workflow file.
    """
    report = DiagnosticReport(origin or SourceMap(plan.name))
    options = (*config.options.items(), *((option.key, str(option.value)) for option in plan.slurm))
    for option in plan.slurm:
        if (reason := RESERVED_OPTIONS.get(option.key)) and not _is_array_limit(option):
            report.key_error(("slurm", option.key), f"slurm.{option.key} cannot be set: {reason}")
    for name in config.options.keys() & RESERVED_OPTIONS.keys():
        report.error((), f"slurm.options.{name} of the settings cannot be set: {RESERVED_OPTIONS[name]}")
    gpu_option = config.gpu_option
    if gpu_option == "auto":
        gpu_option = "gpus-per-node" if cluster.has_cons_tres else "gres"
    defaults = RunSettings()
    settings = RunSettings(
        options=options,
        constraint=_choose_constraint(plan.jobs[0], config, merge_options(options), report),
        gpu_option=gpu_option,
        requests_memory=config.memory,
        may_requeue=config.requeue,
        scratch=config.scratch or defaults.scratch,
        cache=config.cache,
        cache_limit_bytes=config.cache_limit or 0,
        disk_mb=0 if config.scratch else _disk_mb(plan.jobs[0], disk_bytes, cluster, report),
        kill_wait_s=cluster.kill_wait_s,
        has_accounting=cluster.has_accounting,
        max_array_tasks=cluster.max_array_tasks,
        avoid_nodes={**site_history.avoided_sites, **site_history.avoided_nodes},
        query_interval_s=config.query_interval,
    )
    return RunSetup(settings, report.diagnostics)


def _is_array_limit(option: EnvVar) -> bool:
    return option.key == "array" and bool(re.fullmatch(r"%\d+", str(option.value)))


def _choose_constraint(job: Job, config: SlurmConfig, options: Mapping[str, str], report: DiagnosticReport) -> str:
    """Return the constraint for the GPU requirements. The agent checks them on the node, too."""
    if not job.resources.gpus or any(name in options for name in _NODE_OPTIONS):
        return ""
    try:
        constraint, missing = choose_constraint(job.resources.gpu, config.constraints)
    except ValueError as error:
        report.error(("resources", "gpu"), str(error), "correct the settings, or name nodes with `slurm.constraint`")
        return ""
    for name in missing:
        message = (
            f"Slurm is not asked for resources.gpu.{name}, because no entry of `slurm.constraints` in the settings "
            "describes it; a job that starts on an unsuitable node fails there and moves on"
        )
        report.warning(("resources", "gpu", name), message)
    return constraint


def _disk_mb(job: Job, disk_bytes: int | None, cluster: ClusterConfig, report: DiagnosticReport) -> int:
    """Return the disk space to request, 0 where the nodes have no configured disk space (TmpDisk)."""
    n_bytes = job.limits.disk_bytes or disk_bytes
    if not n_bytes or not cluster.max_tmp_disk_mb:
        return 0
    disk_mb = -(-n_bytes // _MIB) + (0 if job.limits.disk_bytes else _DISK_MARGIN_MB)
    if disk_mb > cluster.max_tmp_disk_mb:
        message = f"each job needs {disk_mb} MB of disk space, and no node has more than {cluster.max_tmp_disk_mb} MB"
        report.warning(("limits", "disk") if job.limits.disk_bytes else (), message, "set `slurm.scratch` in settings")
        return 0
    return disk_mb
