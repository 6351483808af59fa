"""Plan the Pixi environment of a job: its packages, what they need of the machine, and its activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packtrain import plan
from packtrain.pixi_workspace.environment import WorkspaceEnvironment
from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.machine_requirements import parse_version
from packtrain.planner.input_output_planner import plan_location
from packtrain.planner.local_paths import resolve_path
from packtrain.planner.pixi_workspaces import DownloadSize
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import KeyPath
from packtrain.spec.models.pixi import PixiConfig

WORKSPACE_INPUT = "workspace"
WORKSPACE_FOLDER = f"inputs/{WORKSPACE_INPUT}"
_KEY_PATH: KeyPath = ("environment", "pixi")


def read_job_environment(context: JobContext) -> WorkspaceEnvironment | None:
    """Read the environment of a job. Problems are reported; then, and for a job without Pixi, the result is None."""
    spec = context.workflow.environment.pixi
    if spec is None:
        return None
    if WORKSPACE_INPUT in context.workflow.inputs:
        message = f"the files of the Pixi workspace are the input {WORKSPACE_INPUT!r}, too"
        context.report.error(("inputs", WORKSPACE_INPUT), message, "give your input another name")
    workspaces = context.plan_context.workspaces
    manifest = resolve_path(context.base_dir, spec.manifest)
    has_gpu = context.resources.gpus > 0
    try:
        environment = workspaces.read(manifest, spec.environment, has_gpu=has_gpu, must_ship=spec.use == "install")
        workspaces.collect(environment, spec.files)
    except PixiError as error:
        for problem in error.problems:
            context.report.error(_KEY_PATH, problem.message, problem.hint)
        return None
    if environment.requires.min_cuda and not has_gpu and not context.plan_context.no_gpu:
        message = (
            f"the environment {environment.name!r} is for CUDA {environment.requires.min_cuda}, but the job has no GPU"
        )
        context.report.warning(_KEY_PATH, message, "request one with `gpus` in `resources`")
    for script in environment.activation_scripts:
        if not (manifest.parent / script).is_file():
            context.report.warning(_KEY_PATH, f"the activation script {script} does not exist in {manifest.parent}")
    return environment


def plan_pixi_environment(environment: WorkspaceEnvironment, context: JobContext) -> plan.PixiEnvironment:
    """Convert an environment that `read_job_environment` returned."""
    spec = context.workflow.environment.pixi
    assert spec is not None
    size = DownloadSize.of(environment.lock.packages)
    manifest = environment.manifest
    requires = environment.requires
    return plan.PixiEnvironment(
        name=environment.name,
        platform=environment.locked_platform,
        digest=environment.digest,
        folder=plan.Location(context.plan_context.run_folder.pixi_environment(environment.name).absolute().as_uri()),
        requires=requires if context.resources.gpus else replace(requires, min_cuda=""),
        use=spec.use,
        workspace=WORKSPACE_FOLDER,
        manifest=manifest.path.name,
        workspace_name=manifest.name,
        workspace_version=manifest.version,
        platforms=environment.platforms,
        activation_scripts=environment.activation_scripts,
        activation_env=tuple(plan.EnvVar(key, value) for key, value in environment.activation_env.items()),
        python_path=environment.python_path,
        mirrors=_plan_mirrors(spec, context),
        store=_plan_store(spec, context),
        n_packages=len(environment.lock.packages),
        download_bytes=size.known_bytes,
        n_unknown_sizes=size.n_unknown,
    )


def _plan_mirrors(spec: PixiConfig, context: JobContext) -> tuple[plan.PixiMirror, ...]:
    locations = {
        prefix.rstrip("/") + "/": plan_location(server, (*_KEY_PATH, "mirrors", prefix), context)
        for prefix, server in spec.mirrors.items()
    }
    return tuple(
        plan.PixiMirror(prefix, replace(location, url=location.url.rstrip("/") + "/"))
        for prefix, location in locations.items()
    )


def _plan_store(spec: PixiConfig, context: JobContext) -> plan.Location | None:
    if spec.store is None:
        return None
    if spec.store.http:
        message = "packages cannot be listed and uploaded on a web server"
        context.report.error((*_KEY_PATH, "store", "http"), message, "use s3, osdf or file")
    return plan_location(spec.store, (*_KEY_PATH, "store"), context)


def plan_workspace_input(context: JobContext) -> plan.Input:
    """Return the input with the workspace's files; the run's folder gets the archive when the run is created."""
    archive = context.plan_context.run_folder.workspace_archive
    size = len(context.plan_context.workspaces.archive)
    file = plan.RemoteFile(archive.name, (plan.Location(archive.absolute().as_uri()),), size)
    return plan.Input(WORKSPACE_INPUT, WORKSPACE_FOLDER, (file,))


def add_download_sizes(planned: plan.Plan, sizes: Mapping[str, DownloadSize]) -> plan.Plan:
    """Return the plan with the sizes that servers reported."""
    return replace(planned, jobs=tuple(_add_download_size(job, sizes) for job in planned.jobs))


def _add_download_size(job: plan.Job, sizes: Mapping[str, DownloadSize]) -> plan.Job:
    pixi = job.environment.pixi
    if pixi is None or pixi.name not in sizes:
        return job
    size = sizes[pixi.name]
    sized = replace(pixi, download_bytes=size.known_bytes, n_unknown_sizes=size.n_unknown)
    return replace(job, environment=replace(job.environment, pixi=sized))


def require_cuda(resources: plan.Resources, environment: WorkspaceEnvironment) -> plan.Resources:
    """Return the resources with the CUDA version that the packages need, unless more is requested."""
    needed, requested = environment.requires.min_cuda, resources.gpu.min_cuda
    if not resources.gpus or parse_version(needed) <= parse_version(requested or ""):
        return resources
    return replace(resources, gpu=replace(resources.gpu, min_cuda=needed))
