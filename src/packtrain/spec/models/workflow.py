"""The whole of a workflow file."""

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
    Seconds,
    SpecModel,
    Str,
    StrOrEmpty,
    VersionNumber,
    WorkflowName,
)
from packtrain.spec.models.inputs_outputs import CheckpointConfig, ExpectedOutputEntry, Input, Output
from packtrain.spec.models.steps import Container, EnvVar, StepEntry


class GpuRequirements(SpecModel):
    """What a GPU must offer; means the same on every engine."""

    min_memory: Megabytes | None = None
    """Least memory, e.g. 24GB; a plain number is megabytes."""
    min_capability: VersionNumber | None = None
    """Least CUDA compute capability, e.g. 8.0."""
    min_driver: VersionNumber | None = None
    """Oldest NVIDIA driver, e.g. 525.60."""
    min_cuda: VersionNumber | None = None
    """Oldest CUDA version that the driver must support, e.g. 12.1."""


class Resources(SpecModel):
    """What one job needs."""

    tasks: PositiveInt
    """Tasks of the job."""
    cpus_per_task: PositiveInt
    """CPUs for each task."""
    mem_per_cpu: Megabytes
    """Memory for each CPU: megabytes, or text such as 4GB."""
    gpus: NonNegativeInt
    """GPUs of the whole job."""
    gpu: GpuRequirements = GpuRequirements()
    """What each GPU must offer."""


class Limits(SpecModel):
    """What a job may take."""

    wall_time: Seconds | None = None
    """Time for one attempt, e.g. 20h."""
    disk: Bytes | None = None
    """Disk that an attempt may use, e.g. 50GB; compared with the machine's before anything moves."""
    max_attempts: PositiveInt = 3
    """How often a job may be tried."""
    grace: Seconds = 30.0
    """Time between asking a step to stop (TERM) and killing it."""
    max_wasted_time: Seconds | None = None
    """Time that the failed attempts of a job may take together, e.g. 40h."""


class Recovery(SpecModel):
    """What the run does about failures."""

    retry_delay: Seconds | None = None
    """Before another attempt after a failure; three times as long after each further one. 2s, in a pool 30s."""
    max_wait: Seconds | None = None
    """That wait at most. 2m, in a pool 10m."""
    max_failures: PositiveInt | None = None
    """Failed attempts that the whole run may have; then nothing more is started."""
    max_wasted_time: Seconds | None = None
    """Time that the failed attempts of the whole run may take together, e.g. 200h."""
    stop_after_identical_failures: NonNegativeInt = 3
    """Jobs that failed alike by a mistake in the workflow or program, before no more are started; 0: never stop."""
    avoid_for: Seconds = 3600.0
    """How long a machine that failed is avoided; the failures of a site weigh half after that time."""
    max_memory_factor: Factor = 4.0
    """Up to so many times the memory, for jobs that were killed for using too much; 1: never more."""
    max_disk_factor: Factor = 4.0
    """Up to so many times the disk, for jobs that had too little; 1: never more."""
    fallback_to_agent: bool = True
    """Let the agent fetch what the pool's plugins (`transfer: plugin`) failed to bring."""
    straggler_budget: Fraction = 0.05
    """Late jobs are moved elsewhere, or get a second copy there; the share of the run's time it may take. 0: never."""
    min_gain: Seconds = 300.0
    """How much sooner a late job has to end elsewhere, at least."""
    max_queue_time: Seconds = 7 * 86400.0
    """A job that waits in a pool fails when no machine has taken anything of the run for so long."""


def _text_to_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class EnvironmentConfig(SpecModel):
    """What surrounds every command that says nothing else."""

    container: Container | None = None
    """Image for each `run` without one."""
    setup: Str = ""
    """Shell lines before each command, e.g. module load cuda."""
    path: Annotated[tuple[Str, ...], BeforeValidator(_text_to_list, json_schema_input_type=Str | list[Str])] = ()
    """Folders in front of PATH."""


class VirtualNetwork(SpecModel):
    """A network between jobs (not supported)."""

    name: Str
    """Its name."""


MatrixPoint = dict[Identifier, StrOrEmpty]


class Matrix(SpecModel):
    """Many jobs, one for each combination of values; keys other than include and exclude name the values."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[tuple[StrOrEmpty, ...], Field(min_length=1)]]

    include: tuple[MatrixPoint, ...] = ()
    """Adds values to the combinations that agree with it, or else one more combination."""
    exclude: tuple[MatrixPoint, ...] = ()
    """Removes the combinations that agree with it."""

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return dict(self.__pydantic_extra__)


class Workflow(SpecModel):
    """A packtrain workflow: a superset of DeepSquare's format."""

    name: WorkflowName | None = None
    """Name of the runs; by default the file's."""
    resources: Resources
    """What one job needs."""
    env: tuple[EnvVar, ...] = ()
    """Variables of all steps."""
    enable_logging: bool = True
    """Keep the steps' output; packtrain always does."""
    input: Input | None = None
    """Data for $DEEPSQUARE_INPUT."""
    inputs: dict[FolderName, Input] = Field(default_factory=dict)
    """More data, by name: $PACKTRAIN_INPUTS/NAME, also in $PACKTRAIN_INPUT_NAME."""
    input_mode: FileMode | None = None
    """chmod -R of the inputs: decimal as in DeepSquare (493), or octal with a leading 0 (0755)."""
    output: Output | None = None
    """Where $DEEPSQUARE_OUTPUT goes; by default the run's folder."""
    continuous_output_sync: bool = False
    """Copy finished files while the job runs; for s3 and file outputs."""
    virtual_networks: tuple[VirtualNetwork, ...] = ()
    """Networks between jobs (not supported)."""
    count: PositiveInt = 1
    """How many jobs, or how many for each combination of the matrix."""
    matrix: Matrix | None = None
    """Many jobs, one for each combination of values."""
    checkpoint: CheckpointConfig | None = None
    """What the program saves in order to go on later."""
    expect: tuple[ExpectedOutputEntry, ...] = ()
    """What must exist at the end."""
    limits: Limits = Limits()
    """What a job may take."""
    recovery: Recovery = Recovery()
    """What the run does about failures."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """What surrounds every command that says nothing else."""
    htcondor: dict[Str, StrOrEmpty] = Field(default_factory=dict)
    """Lines for HTCondor's submit file."""
    slurm: dict[Str, StrOrEmpty] = Field(default_factory=dict)
    """Options for Slurm's sbatch."""
    steps: tuple[StepEntry, ...]
    """What the job does, in this order."""

    _source_map: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source_map(self) -> SourceMap:
        """Where each value stands in the file."""
        return self._source_map


class ModuleInput(SpecModel):
    """A variable that a module takes."""

    key: Identifier
    """Its name."""
    description: Str = ""
    """What it is for."""
    default: StrOrEmpty | None = None
    """Its value when the user gives none; without a default it must be given."""


class ModuleOutput(SpecModel):
    """A variable that a module exports."""

    key: Identifier
    """Its name."""
    description: Str = ""
    """What it says."""


class WorkflowModule(SpecModel):
    """A module.yaml: steps that others `use`."""

    name: Str
    """Name of the module."""
    description: Str = ""
    """What it does."""
    minimum_resources: Resources | None = None
    """What it needs at least; for people to read."""
    inputs: tuple[ModuleInput, ...] = ()
    """Variables that it takes."""
    outputs: tuple[ModuleOutput, ...] = ()
    """Variables that it exports."""
    steps: tuple[StepEntry, ...]
    """What it does; an entry '{{ .Step.Steps }}' is where its user's steps go."""

    _source_map: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source_map(self) -> SourceMap:
        return self._source_map


def workflow_json_schema() -> dict[str, Any]:
    """The JSON Schema of workflow files, for editors."""
    made = Workflow.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
