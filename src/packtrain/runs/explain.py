"""What `packtrain why` needs to know about a run."""

from __future__ import annotations

import time

from packtrain import services
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.slurm import run_settings as slurm_settings
from packtrain.plan import RunFolder, read_plan
from packtrain.store import RunInfo, SqliteStore
from packtrain.supervise.policies import PolicyConfig
from packtrain.views.explain import ExplainContext


def make_explain_context(store: SqliteStore, run_info: RunInfo) -> ExplainContext:
    """Return the state of a run and everything else that explains it."""
    return ExplainContext(
        services.refresh_state(store, run_info),
        RunFolder(run_info.folder),
        services.live_supervisor_lease(store, run_info.run) is not None,
        _load_policy_config(run_info),
        time.time(),
        _load_initially_avoided(run_info),
    )


def _load_initially_avoided(run_info: RunInfo) -> dict[str, str]:
    """Return the sites and nodes that the run avoids since it was created, with the reasons."""
    folder = RunFolder(run_info.folder)
    slurm_path = folder.slurm / slurm_settings.SETTINGS_FILE
    if slurm_path.exists():
        return dict(slurm_settings.RunSettings.read(slurm_path).avoid_nodes)
    path = folder.htcondor / "run_settings.json"
    preferences = RunSettings.read(path).site_preferences if path.exists() else SitePreferences()
    return {**preferences.avoid_sites, **preferences.avoid_nodes}


def _load_policy_config(run_info: RunInfo) -> PolicyConfig:
    """Return the policy configuration of a run, or the defaults if its folder is gone."""
    path = RunFolder(run_info.folder).plan
    if not path.exists():
        return PolicyConfig()
    plan = read_plan(path)
    return PolicyConfig.from_plan(plan, services.engine_capabilities(run_info.engine, plan))
