"""Helpers to test the Slurm engine: a run folder that the nodes of a cluster share."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from packtrain.engines.api import SubmitRequest
from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.plan import EnvVar, Job, Limits, Plan, Resources, write_plan
from testbed import condor
from testbed.slurm.cluster import Cluster
from tests.support.pool_updates import AGENT_SCRIPT, FakeEngineHarness
from tests.support.remote_engine import RemoteEngine

LARGE = Resources(cpus_per_task=16, mem_per_cpu_mb=100)  # only node n1 is that large, so that one job runs at a time


class SlurmEngineHarness(FakeEngineHarness):
    """Creates Slurm engines and requests for one run.

    Args:
        root: Folder for the run.
        cluster: The cluster.
        resources: What each job requests.
        options: `slurm:` of the workflow.
        settings: Settings of the run.
    """

    def __init__(
        self,
        root: Path,
        cluster: Cluster,
        resources: Resources = LARGE,
        options: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(root)
        self._cluster, self._resources, self._engines = cluster, resources, []
        jobs = tuple(Job(str(n), (), resources, Limits(grace_s=1.0), ()) for n in range(9))
        slurm = tuple(EnvVar(key, value) for key, value in (options or {}).items())
        plan = Plan("run-1", "run", "slurm", jobs, slurm=slurm)
        write_plan(plan, self.folder.plan)
        replace(RunSettings.for_plan(plan), **settings).write(self.folder.slurm / SETTINGS_FILE)
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(AGENT_SCRIPT))}"
        self.folder.launcher.write_text(f'#!/bin/sh\n{command} "$@"\n')

    def make_engine(self) -> Any:
        engine = RemoteEngine(lambda argv: [*condor.user_prefix(), *argv], self._cluster.env, self.folder)
        self._engines.append(engine)
        return engine

    def make_request(self, attempt_id: str, behavior: str, **limits: Any) -> SubmitRequest:
        return super().make_request(attempt_id, behavior, self._resources, **{"grace_s": 1.0, **limits})

    def set_behavior(self, job: str, behavior: str) -> None:
        self.folder.job_folder(job).mkdir(parents=True, exist_ok=True)
        self.folder.job_plan(job).write_text(behavior)

    def kill_agents(self) -> None:
        for engine in self._engines:
            engine.close()
