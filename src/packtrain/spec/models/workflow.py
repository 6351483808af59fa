"""The top level of a workflow file, and of a module.yaml."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr

from packtrain.spec.diagnostics import SourceMap
from packtrain.spec.models.field_types import (
    Bytes,
    Factor,
    FileMode,
    FolderName,
    Fraction,
    Identifier,
    Megabytes,
    NonNegativeInt,
    PositiveInt,
    SbatchOption,
    Seconds,
    SpecModel,
    Str,
    StrOrEmpty,
    VersionNumber,
    WorkflowName,
)
from packtrain.spec.models.inputs_outputs import CheckpointConfig, ExpectedOutputEntry, Input, Output
from packtrain.spec.models.pixi import PixiConfig
from packtrain.spec.models.steps import Container, EnvVar, StepEntry


class GpuRequirements(SpecModel):
    """Minimum properties of each GPU, with the same meaning on every engine."""

    min_memory: Megabytes | None = None
    """Minimum memory, e.g. 24GB; a plain number is megabytes."""
    min_capability: VersionNumber | None = None
    """Minimum CUDA compute capability, e.g. 8.0."""
    min_driver: VersionNumber | None = None
    """Minimum NVIDIA driver version, e.g. 525.60."""
    min_cuda: VersionNumber | None = None
    """Minimum CUDA version that the driver supports, e.g. 12.1."""


class Resources(SpecModel):
    """Resources of one job."""

    tasks: PositiveInt
    """Number of tasks."""
    cpus_per_task: PositiveInt
    """CPUs per task."""
    mem_per_cpu: Megabytes
    """Memory per CPU: megabytes, or text such as 4GB."""
    gpus: NonNegativeInt
    """Number of GPUs of the job."""
    gpu: GpuRequirements = GpuRequirements()
    """Minimum properties of each GPU."""


class Limits(SpecModel):
    """Limits of a job."""

    wall_time: Seconds | None = None
    """Maximum run time of one attempt, e.g. 20h."""
    disk: Bytes | None = None
    """Disk space that an attempt needs, e.g. 50GB; checked on the node before any transfer."""
    max_attempts: PositiveInt = 3
    """Maximum number of attempts of a job."""
    grace: Seconds = 30.0
    """Time between SIGTERM and SIGKILL when a step is stopped."""
    max_wasted_time: Seconds | None = None
    """Maximum total slot time of a job's failed attempts, e.g. 40h."""


class Recovery(SpecModel):
    """How the run reacts to failures."""

    retry_delay: Seconds | None = None
    """Delay before the next attempt; triples after each further failure (default 2s locally, 30s on a pool)."""
    max_wait: Seconds | None = None
    """Maximum retry delay (default 2m locally, 10m on a pool)."""
    max_failures: PositiveInt | None = None
    """Maximum number of failed attempts of the run; then nothing more is started."""
    max_wasted_time: Seconds | None = None
    """Maximum total slot time of the run's failed attempts, e.g. 200h."""
    stop_after_identical_failures: NonNegativeInt = 3
    """Stop the run after as many jobs with the same error in the workflow or program; 0: never."""
    avoid_for: Seconds = 3600.0
    """How long a failed node is avoided; also the half-life of a site's failures."""
    max_memory_factor: Factor = 4.0
    """Maximum memory multiplier after an out-of-memory failure; 1: never more."""
    max_disk_factor: Factor = 4.0
    """Maximum disk multiplier after a disk-full failure; 1: never more."""
    fallback_to_agent: bool = True
    """The agent fetches inputs that the pool's plugins (`transfer: plugin`) failed to fetch."""
    straggler_budget: Fraction = 0.05
    """Share of the run's slot time for moving stragglers or starting copies of them; 0: never."""
    min_gain: Seconds = 300.0
    """Minimum time that a straggler must be expected to gain elsewhere."""
    max_queue_time: Seconds = 7 * 86400.0
    """Waiting jobs fail when no node has accepted any job of the run for this long."""


def _text_to_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class EnvironmentConfig(SpecModel):
    """The default environment of commands. Give at most one of `container`, `pixi`."""

    container: Container | None = None
    """Image for every `run` without one."""
    pixi: PixiConfig | None = None
    """Locked Pixi environment for every `run` without a container."""
    setup: Str = ""
    """Shell lines before each command, e.g. module load cuda."""
    path: Annotated[tuple[Str, ...], BeforeValidator(_text_to_list, json_schema_input_type=Str | list[Str])] = ()
    """Folders prepended to PATH."""
    inherit: Annotated[tuple[Str, ...], BeforeValidator(_text_to_list, json_schema_input_type=Str | list[Str])] = ()
    """Variables of the shell in which packtrain is called that steps get, as names or patterns; * for all."""


class VirtualNetwork(SpecModel):
    """A network between steps (not supported)."""

    name: Str
    """Its name."""
    gateway_address: Str | None = None
    """Address of its gateway, e.g. 10.0.0.1/24."""


MatrixPoint = dict[Identifier, StrOrEmpty]


class Matrix(SpecModel):
    """One job for each combination of values; keys other than include and exclude are the axes."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[tuple[StrOrEmpty, ...], Field(min_length=1)]]

    include: tuple[MatrixPoint, ...] = ()
    """Adds values to matching combinations, or a further combination."""
    exclude: tuple[MatrixPoint, ...] = ()
    """Removes matching combinations."""

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return dict(self.__pydantic_extra__)


class Workflow(SpecModel):
    """A packtrain workflow: a superset of DeepSquare's format."""

    name: WorkflowName | None = None
    """Name of the runs (default: the file name)."""
    resources: Resources
    """Resources of one job."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables of all steps."""
    enable_logging: bool = True
    """Keep the steps' output; packtrain always does."""
    input: Input | None = None
    """Data for $DEEPSQUARE_INPUT."""
    inputs: dict[FolderName, Input] = Field(default_factory=dict)
    """More data, by name: $PACKTRAIN_INPUTS/NAME, also in $PACKTRAIN_INPUT_NAME."""
    input_mode: FileMode | None = None
    """chmod -R of the inputs: decimal as in DeepSquare (493), or octal with a leading 0 (0755)."""
    output: Output | None = None
    """Destination of $DEEPSQUARE_OUTPUT (default: the run's folder)."""
    continuous_output_sync: bool = False
    """Upload finished files while the job runs; for s3 and file outputs, without effect for others."""
    virtual_networks: tuple[VirtualNetwork, ...] = ()
    """Networks between steps (not supported)."""
    count: PositiveInt = 1
    """Number of jobs, or of jobs per combination of the matrix."""
    matrix: Matrix | None = None
    """One job for each combination of values."""
    checkpoint: CheckpointConfig | None = None
    """The checkpoint files that the program saves."""
    expect: tuple[ExpectedOutputEntry, ...] = ()
    """Files that must exist at the end."""
    limits: Limits = Limits()
    """Limits of a job."""
    recovery: Recovery = Recovery()
    """How the run reacts to failures."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """The default environment of commands."""
    htcondor: dict[Str, StrOrEmpty] = Field(default_factory=dict)
    """Further HTCondor submit commands."""
    slurm: dict[SbatchOption, StrOrEmpty] = Field(default_factory=dict)
    """Options of Slurm's sbatch by long name, e.g. partition; true: without a value, false: left out."""
    steps: tuple[StepEntry, ...]
    """Steps of the job, in order."""

    _source_map: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source_map(self) -> SourceMap:
        """The positions of all values in the file."""
        return self._source_map


class ModuleInput(SpecModel):
    """An input variable of a module."""

    key: Identifier
    """Its name."""
    description: Str = ""
    """Its purpose."""
    default: StrOrEmpty | None = None
    """Its default value; without one it is empty."""


class ModuleOutput(SpecModel):
    """An output variable of a module."""

    key: Identifier
    """Its name."""
    description: Str = ""
    """Its meaning."""


class MinimumResources(SpecModel):
    """Resources that a job needs to use a module."""

    tasks: NonNegativeInt = 0
    """Number of tasks."""
    cpus_per_task: NonNegativeInt = 0
    """CPUs per task."""
    mem_per_cpu: Megabytes | None = None
    """Memory per CPU."""
    gpus: NonNegativeInt = 0
    """Number of GPUs."""


class WorkflowModule(SpecModel):
    """A module.yaml: reusable steps."""

    name: Str
    """Name of the module."""
    description: Str = ""
    """What it does."""
    minimum_resources: MinimumResources = MinimumResources()
    """Minimum resources of the job."""
    inputs: tuple[ModuleInput, ...] = ()
    """Its input variables."""
    outputs: tuple[ModuleOutput, ...] = ()
    """Its output variables."""
    steps: tuple[StepEntry, ...]
    """Its steps; the entry '{{ .Step.Steps }}' is replaced by the user's steps."""

    _source_map: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source_map(self) -> SourceMap:
        return self._source_map


def workflow_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow files, for editors."""
    schema = Workflow.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
