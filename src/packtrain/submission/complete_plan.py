"""Complete a drafted plan with what is learned before the run is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain.engines.api import Capabilities
from packtrain.engines.htcondor.shell_runner import use_plugin_transfer
from packtrain.plan import HostSpeed, Input, Plan
from packtrain.planner.engine_limits import clamp_memory
from packtrain.planner.pixi_planner import add_download_sizes
from packtrain.planner.pixi_workspaces import DownloadSize
from packtrain.planner.preflight import PreflightResult, add_sizes
from packtrain.planner.stream_planner import add_indexes
from packtrain.stream.index import Index


@dataclass(frozen=True)
class PlanFacts:
    """What is known about a drafted plan."""

    capabilities: Capabilities  # of the engine
    index_folder: Path  # where the run will have its indexes
    host_speeds: tuple[HostSpeed, ...] = ()  # measured by earlier runs
    preflight: PreflightResult = field(default_factory=PreflightResult)
    without_agent: bool = False  # the image has no Python
    download_sizes: Mapping[str, DownloadSize] = field(default_factory=dict)  # of the Pixi environments, by name
    indexes: Mapping[Input, Index] = field(default_factory=dict)  # of the streamed inputs of the draft


def complete_plan(draft: Plan, facts: PlanFacts) -> Plan:
    """Return the plan of the run. Pure; the only place that changes a plan after `make_plan`."""
    plan = add_indexes(draft, facts.indexes, facts.index_folder)
    plan = add_sizes(clamp_memory(plan, facts.capabilities), facts.preflight)
    if facts.without_agent:
        plan = use_plugin_transfer(plan)
    plan = add_download_sizes(plan, facts.download_sizes)
    return replace(plan, host_speeds=facts.host_speeds)
