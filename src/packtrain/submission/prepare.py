"""Load, check and plan a workflow: everything between the file and the run on disk, in this order.

    load → draft the plan → secrets, engine limits → sizes of the inputs → complete the plan → access, pool
    → indexes of streamed inputs; if there are any, the draft is completed with them instead

Not part of `services`, because reading workflows takes half a second to import and most commands never do it.
"""

from __future__ import annotations

import enum
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import find_problems, make_run_settings
from packtrain.engines.htcondor.shell_runner import RunnerChoice, choose_runner
from packtrain.engines.htcondor.supervisor_job import reject_getenv
from packtrain.engines.slurm.run_settings import RunSettings as SlurmRunSettings
from packtrain.engines.slurm.run_setup import set_up_run
from packtrain.engines.slurm.slurm_client import SlurmClient
from packtrain.indexing import get_or_build_index
from packtrain.indexing.existing import index_cache_dir
from packtrain.plan import Input, Plan, RunFolder
from packtrain.planner.credentials.secret_sources import SecretSource, resolve_secrets, secret_resolver
from packtrain.planner.engine_limits import check_engine_limits
from packtrain.planner.make_plan import make_plan
from packtrain.planner.pixi_workspaces import PixiWorkspaces
from packtrain.planner.plan_summary import PlanSummary, summarize_plan
from packtrain.planner.preflight import check_input_access, run_preflight
from packtrain.planner.stream_planner import make_index_request, streamed_inputs
from packtrain.services import engine_capabilities
from packtrain.spec.diagnostics import WARNING, Diagnostic, SourceMap, WorkflowError
from packtrain.spec.user_config import load_user_config
from packtrain.state.site_history import EMPTY_HISTORY, SiteHistory
from packtrain.stream.index import Index
from packtrain.submission.complete_plan import PlanFacts, complete_plan
from packtrain.submission.load_workflow import WorkflowSource, find_workflow_dir, load_workflow
from packtrain.submission.package_store import fill_store
from packtrain.submission.progress import Progress
from packtrain.transfer.api import SecretResolver

_INDEX_RETRY_TIMEOUT_S = 60.0
_logger = logging.getLogger(__name__)


class Goal(enum.IntEnum):
    """How far `prepare` goes. Each goal includes the ones before."""

    CHECK = 1  # check the file; contacts no server
    PLAN = 2  # query the sizes of the inputs
    DRY_RUN = 3  # check the access to the inputs, and what the pool would reject
    RUN = 4  # find or build the indexes of streamed inputs


@dataclass(frozen=True)
class Submission:
    """A workflow that is ready to run. Nothing is written to disk yet."""

    plan: Plan
    summary: PlanSummary
    run_folder: RunFolder
    workflow_dir: Path
    diagnostics: tuple[Diagnostic, ...]  # warnings
    secret_sources: Mapping[str, SecretSource] = field(repr=False)
    secret_values: Mapping[str, str] = field(repr=False)
    run_settings: RunSettings | None = None  # for HTCondor
    slurm_settings: SlurmRunSettings | None = None
    without_agent: bool = False  # the image has no Python, so jobs run without the agent
    index_paths: tuple[Path, ...] = ()  # indexes of streamed inputs; the run gets copies
    workspaces: PixiWorkspaces = field(default_factory=PixiWorkspaces)  # of its Pixi environments


def prepare(
    workflow: WorkflowSource,
    engine: str,
    *,
    goal: Goal = Goal.RUN,
    progress: Progress | None = None,
    matrix: Mapping[str, Any] | None = None,
    expect: tuple[str, ...] = (),
    strict: bool = True,
    no_container: bool = False,
    no_gpu: bool = False,
    offline: bool = False,
    detach: bool = False,
    pixi: str = "",
    site_history: SiteHistory = EMPTY_HISTORY,
) -> Submission:
    """Load, check and plan a workflow.

    Args:
        workflow: The path of a workflow file, submit file or batch script, or a mapping with the keys of a workflow
            file.
        engine: The name of the engine, `local`, `htcondor` or `slurm`.
        goal: How far to go.
        progress: Receives diagnostics as they are found, the summary of the plan, and the progress of slow steps.
        matrix: Replaces the matrix of the workflow.
        expect: More files that the outputs must contain.
        strict: Report what this machine lacks (a GPU, a variable with a token) as errors; else as warnings.
        no_container: Run every step on the host.
        no_gpu: Ignore the GPUs that the workflow requests.
        offline: Do not query the sizes of the inputs.
        detach: Also check that the run works with a detached supervisor.
        pixi: The Pixi environment of all commands, `MANIFEST` or `MANIFEST:ENVIRONMENT`; "" for the workflow's own.
        site_history: What earlier runs learned about sites and servers.

    Raises:
        WorkflowError: The workflow has errors.
        UsageError: The engine is unknown, or the run cannot be detached.
        FailedError: A streamed input cannot be indexed.
    """
    progress = progress or Progress()
    diagnostics = _Diagnostics(progress)
    draft = _make_draft(workflow, engine, diagnostics, matrix, expect, strict, no_container, no_gpu, pixi)
    facts = PlanFacts(engine_capabilities(engine), draft.run_folder.indexes, site_history.source_speeds())
    if goal >= Goal.PLAN and not offline:
        with progress.querying_inputs():
            facts = replace(facts, preflight=run_preflight(draft.plan, draft.secret_values))
            draft.workspaces.query_sizes()
            facts = replace(facts, download_sizes=draft.workspaces.download_sizes)
        for stat in facts.preflight.input_stats.values():
            _logger.debug("input %s: %s", stat.url, stat.error or f"{stat.size} bytes")
    runner = RunnerChoice()
    if goal >= Goal.DRY_RUN and engine == "htcondor":
        runner = choose_runner(draft.plan, draft.source_map)
        facts = replace(facts, without_agent=runner.without_agent)
    plan = complete_plan(draft.plan, facts)
    summary = summarize_plan(plan, facts.preflight, draft.workspaces.package_sources)
    settings, slurm_settings = None, None
    if goal >= Goal.DRY_RUN and engine != "local":
        user_config = load_user_config().htcondor
        submit_commands = user_config.submit_commands if engine == "htcondor" else {}
        diagnostics.add(check_input_access(plan, facts.preflight, draft.source_map, submit_commands))
        if engine == "htcondor":
            settings = make_run_settings(plan, user_config, summary.disk_bytes, site_history)
            diagnostics.add((*runner.problems, *find_problems(plan, settings, CondorClient(), draft.source_map)))
        if engine == "slurm":
            slurm_config, cluster = load_user_config().slurm, SlurmClient().read_config()
            setup = set_up_run(plan, slurm_config, cluster, summary.disk_bytes, site_history, draft.source_map)
            slurm_settings = setup.settings
            diagnostics.add(setup.problems)
        diagnostics.raise_errors()
        if settings and detach:
            reject_getenv(settings)
    progress.on_summary(summary)
    if goal >= Goal.RUN:
        _fill_stores(draft, progress)
    if goal >= Goal.RUN and (streamed := streamed_inputs(draft.plan)):
        facts = replace(facts, indexes=_get_indexes(streamed, secret_resolver(draft.secret_values), progress))
        plan = complete_plan(draft.plan, facts)
    return Submission(
        plan=plan,
        summary=summary,
        run_folder=draft.run_folder,
        workflow_dir=draft.workflow_dir,
        diagnostics=diagnostics.found,
        secret_sources=draft.secret_sources,
        secret_values=draft.secret_values,
        run_settings=settings,
        slurm_settings=slurm_settings,
        without_agent=facts.without_agent,
        index_paths=tuple(dict.fromkeys(index.path for index in facts.indexes.values())),
        workspaces=draft.workspaces,
    )


def _fill_stores(draft: _Draft, progress: Progress) -> None:
    """Upload the packages of the environments to their stores."""
    environments = {job.environment.pixi.name: job.environment.pixi for job in draft.plan.jobs if job.environment.pixi}
    for name, environment in environments.items():
        files = draft.workspaces.environments[name]
        fill_store(environment, files.lock, secret_resolver(draft.secret_values), progress)


class _Diagnostics:
    """The diagnostics found so far, each once. New ones are reported at once."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.found: tuple[Diagnostic, ...] = ()

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        new = tuple(diagnostic for diagnostic in dict.fromkeys(diagnostics) if diagnostic not in self.found)
        self.found += new
        if new:
            self._progress.on_diagnostics(new)

    def raise_errors(self) -> None:
        if any(diagnostic.is_error for diagnostic in self.found):
            raise WorkflowError(self.found)


@dataclass(frozen=True)
class _Draft:
    """The plan of a workflow before any server was contacted."""

    plan: Plan
    run_folder: RunFolder
    workflow_dir: Path
    source_map: SourceMap
    secret_sources: Mapping[str, SecretSource]
    secret_values: Mapping[str, str]
    workspaces: PixiWorkspaces


def _make_draft(
    source: WorkflowSource,
    engine: str,
    diagnostics: _Diagnostics,
    matrix: Mapping[str, Any] | None,
    expect: tuple[str, ...],
    strict: bool,
    no_container: bool,
    no_gpu: bool,
    pixi: str,
) -> _Draft:
    """Load and plan a workflow, read its secrets, and check that the engine can run it."""
    capabilities = engine_capabilities(engine)
    loaded = load_workflow(source, expect, matrix, pixi)
    diagnostics.add(loaded.diagnostics)
    workflow = loaded.workflow
    if workflow is None:
        raise WorkflowError(diagnostics.found)
    run, workflow_dir = new_run_id(workflow.name or Path(workflow.source_map.filename).stem), find_workflow_dir(source)
    folder = RunFolder.for_run(Path.cwd(), run)
    result = make_plan(
        workflow,
        run=run,
        engine=engine,
        workflow_dir=workflow_dir,
        run_folder=folder,
        no_container=no_container,
        no_gpu=no_gpu,
    )
    resolved = resolve_secrets(result.secrets, workflow_dir)
    lacking = (*resolved.diagnostics, *check_engine_limits(result.plan, capabilities, workflow.source_map))
    diagnostics.add(result.diagnostics)
    diagnostics.add(lacking if strict else (replace(diagnostic, severity=WARNING) for diagnostic in lacking))
    diagnostics.raise_errors()
    _logger.info("planned %s: %d jobs on %s", run, len(result.plan.jobs), engine)
    return _Draft(
        result.plan, folder, workflow_dir, workflow.source_map, result.secrets, resolved.values, result.workspaces
    )


def new_run_id(name: str) -> str:
    """Return the workflow's name and four random characters, e.g. cifar10-x7kq."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return f"{name}-{''.join(secrets.choice(alphabet) for _ in range(4))}"


def _get_indexes(inputs: Iterable[Input], resolve_secret: SecretResolver, progress: Progress) -> dict[Input, Index]:
    """Find or build the index of each streamed input."""
    indexes: dict[Input, Index] = {}
    for input_ in inputs:
        name, started_at = input_.name or "input", time.monotonic()
        with progress.indexing(name) as callbacks:
            result = get_or_build_index(
                make_index_request(input_, resolve_secret, _INDEX_RETRY_TIMEOUT_S),
                index_cache_dir(),
                check_cancelled=callbacks.check_cancelled,
                on_progress=callbacks.on_progress,
            )
        _logger.info("index of %s: %s (%s)", name, result.index.path, result.origin)
        progress.on_index(name, result, time.monotonic() - started_at)
        indexes[input_] = result.index
    return indexes
