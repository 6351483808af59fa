"""Frozen dataclasses of the plan. Field names are the JSON keys; docs/formats/plan.md explains them.

Types use Optional and Union because the codec resolves them at run time on Python 3.9.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from packtrain.plan.fast_dataclass import dataclass

PLAN_VERSION = 1


@dataclass(frozen=True)
class Secret:
    """The name of a file in the run's `secrets/` folder. The value is never part of a plan."""

    name: str


SecretOrStr = Union[str, Secret]


@dataclass(frozen=True)
class Digest:
    algorithm: str  # sha256, md5, crc32c
    value: str  # lower-case hex


@dataclass(frozen=True)
class HttpHeader:
    name: str
    value: SecretOrStr


@dataclass(frozen=True)
class S3Access:
    region: str
    endpoint: str  # https://host[:port]
    access_key: Optional[SecretOrStr] = None  # none = unsigned requests
    secret_key: Optional[SecretOrStr] = None
    session_token: Optional[SecretOrStr] = None


@dataclass(frozen=True)
class Location:
    """An address and what it takes to be let in: file://, http(s)://, s3://bucket/key, osdf:///path."""

    url: str
    headers: tuple[HttpHeader, ...] = ()
    token: Optional[SecretOrStr] = None  # sent as `Authorization: Bearer`, to this URL's host only
    s3: Optional[S3Access] = None


@dataclass(frozen=True)
class RemoteFile:
    """One file of an input, with every place it can be had from."""

    name: str  # file name below the input's folder
    locations: tuple[Location, ...]
    size: Optional[int] = None  # as seen when planned
    digest: Optional[Digest] = None  # what the user demands
    checksums: Optional[Location] = None  # where its checksums file is: bad blocks alone are fetched again


@dataclass(frozen=True)
class Input:
    name: str  # "" for the workflow's `input`
    folder: str  # relative to the sandbox: "input", "inputs/NAME"
    files: tuple[RemoteFile, ...] = ()
    prefix: Optional[Location] = None  # instead of items: everything below this address
    unpack: str = "auto"  # auto, never
    nested: bool = False  # a tar of tars: each inner tar becomes a folder
    mode: str = "stage"  # stage, stream
    transfer: str = "auto"  # auto, native, plugin, agent
    chmod: Optional[int] = None
    index: Optional[RemoteFile] = None  # with `mode: stream`: where the samples lie in `items`, which are its archives


@dataclass(frozen=True)
class Output:
    """Where the output folder goes: a prefix (file, s3, osdf) or, for http, one URL."""

    location: Location
    continuous_sync: bool = False  # copy finished files while the job runs
    delete_sync: bool = False  # remove at the destination what is gone here
    retry_timeout_s: Optional[float] = None  # how long the last copy is tried without getting further; none: the job's


@dataclass(frozen=True)
class CheckpointConfig:
    path: str  # relative to the output folder, may be a glob
    min_interval_s: Optional[float] = None  # least time between the beginnings of two generations


@dataclass(frozen=True)
class Bound:
    """A finite number that a JSON file must have."""

    key: str  # keys that lead to it, joined by dots; in a list a number, from the end if negative
    min: Optional[float] = None
    max: Optional[float] = None


@dataclass(frozen=True)
class ExpectedOutput:
    """What must exist in the output folder at the end."""

    path: str  # a glob relative to the output folder
    min_bytes: int = 1
    max_bytes: Optional[int] = None
    min_count: int = 1
    max_count: Optional[int] = None
    command: str = ""  # run with $PACKTRAIN_FILE set, once a file; must exit 0
    torch: bool = False  # loads with weights_only, has tensors, all values are finite
    json_bounds: Optional[tuple[Bound, ...]] = None  # is JSON, with these numbers
    archive: bool = False  # can be read to its end: tar, zip, gz, bz2, xz


@dataclass(frozen=True)
class GpuRequirements:
    min_memory_mb: Optional[int] = None
    min_capability: Optional[str] = None  # "8.0"
    min_driver: Optional[str] = None  # "525.60"
    min_cuda: Optional[str] = None  # "12.1"


@dataclass(frozen=True)
class Resources:
    tasks: int = 1
    cpus_per_task: int = 1
    mem_per_cpu_mb: int = 1024
    gpus: int = 0  # of the whole job
    gpu: GpuRequirements = GpuRequirements()

    @property
    def cpus(self) -> int:
        return self.tasks * self.cpus_per_task

    @property
    def memory_mb(self) -> int:
        return self.cpus * self.mem_per_cpu_mb


@dataclass(frozen=True)
class Limits:
    wall_time_s: Optional[float] = None
    disk_bytes: Optional[int] = None
    max_attempts: int = 3
    grace_s: float = 30.0  # between TERM and KILL
    max_wasted_time_s: Optional[float] = None  # what failed attempts may take together


@dataclass(frozen=True)
class EnvVar:
    key: str
    value: SecretOrStr


@dataclass(frozen=True)
class Mount:
    host_dir: str
    container_dir: str
    options: str = "rw"


@dataclass(frozen=True)
class Container:
    image: str  # what Apptainer takes: /path.sif, docker://registry/image:tag, oras://…
    username: Optional[SecretOrStr] = None
    password: Optional[SecretOrStr] = None
    mount_home: bool = False
    read_only: bool = False
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class EnvironmentConfig:
    """What surrounds every `run` that says nothing else."""

    container: Optional[Container] = None
    setup: str = ""  # shell lines before each command, e.g. `module load`
    path: tuple[str, ...] = ()  # in front of PATH


@dataclass(frozen=True)
class StepResources:
    tasks: int = 1
    cpus_per_task: int = 1
    mem_per_cpu_mb: int = 1024
    gpus_per_task: int = 0


@dataclass(frozen=True)
class CollectedOutput:
    path: str  # below the working folder; a glob means files that are new or changed
    to: str = ""  # below the output folder; empty: the last part of the path


@dataclass(frozen=True)
class RunAction:
    command: str  # empty: the image's entrypoint
    shell: str = "/bin/sh"  # a path, or ENTRYPOINT
    resources: StepResources = StepResources()
    container: Optional[Container] = None
    env: tuple[EnvVar, ...] = ()
    work_dir: str = ""  # absolute, or below the sandbox; empty: the sandbox
    stdout: str = ""  # file below the output folder that also gets what it prints
    stderr: str = ""
    collect: tuple[CollectedOutput, ...] = ()  # what becomes an output when it has ended
    kind: str = field(default="run", init=False)


@dataclass(frozen=True)
class GroupAction:
    steps: tuple[Step, ...]
    kind: str = field(default="steps", init=False)


@dataclass(frozen=True)
class ForAction:
    variable: str  # "item" or "index"
    values: tuple[str, ...]
    parallel: bool
    steps: tuple[Step, ...]
    kind: str = field(default="for", init=False)


@dataclass(frozen=True)
class LaunchAction:
    """Steps in the background; `handle` lets later steps of the level wait for them."""

    handle: str
    signal_on_parent_exit: int  # sent when the level above ends; 0 = none, they are awaited
    steps: tuple[Step, ...]
    kind: str = field(default="launch", init=False)


@dataclass(frozen=True)
class UseAction:
    """A module: a folder or git repository with a `module.yaml`, read when planned."""

    source: str
    args: tuple[EnvVar, ...]
    export_prefix: str  # outputs of the module become PREFIX_NAME
    steps: tuple[Step, ...]  # the module's own, the user's children in their place
    outputs: tuple[str, ...] = ()  # variables that the module exports
    kind: str = field(default="use", init=False)


@dataclass(frozen=True)
class Step:
    name: str
    action: Union[RunAction, GroupAction, ForAction, LaunchAction, UseAction]
    depends_on: tuple[str, ...] = ()
    condition: str = ""  # inside bash's [[ ]]; empty: always
    catch: tuple[Step, ...] = ()
    finally_: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Job:
    id: str  # "0", "1", …
    point: tuple[EnvVar, ...]  # the matrix point, e.g. lr=0.1
    resources: Resources
    limits: Limits
    steps: tuple[Step, ...]
    env: tuple[EnvVar, ...] = ()
    inputs: tuple[Input, ...] = ()
    output: Optional[Output] = None  # none: the run's folder
    expect: tuple[ExpectedOutput, ...] = ()
    checkpoint: Optional[CheckpointConfig] = None
    environment: EnvironmentConfig = EnvironmentConfig()
    retry_timeout_s: float = 300.0  # how long all sources must agree before a 404 or 5xx is believed


@dataclass(frozen=True)
class Recovery:
    """What a run does about failures."""

    retry_delay_s: float = 2.0  # before another attempt; three times as long after each further failure
    max_wait_s: float = 120.0
    max_failures: Optional[int] = None  # failed attempts that the whole run may have
    max_wasted_time_s: Optional[float] = None  # what failed attempts of the whole run may take together
    stop_after_identical_failures: int = (
        3  # jobs that failed alike by the user's fault, before no more are started; 0: never
    )
    avoid_for_s: float = 3600.0  # how long a machine that failed is avoided; a site's failures weigh half after it
    max_memory_factor: float = 4.0  # times what is planned; 1: never more
    max_disk_factor: float = 4.0
    fallback_to_agent: bool = True  # let the agent fetch what the pool's plugins fail to bring
    straggler_budget: float = (
        0.05  # of the run's time on machines: what may be done twice for late jobs; 0: they are let be
    )
    min_gain_s: float = 300.0  # how much sooner a late job has to end elsewhere
    max_queue_time_s: float = 604800.0  # how long no machine of a pool may take anything of the run


@dataclass(frozen=True)
class HostSpeed:
    """What came from a host in earlier runs, in bytes a second."""

    host: str
    bytes_per_s: int
    site: str = ""  # where the jobs ran; "": anywhere


@dataclass(frozen=True)
class Plan:
    run: str
    name: str
    engine: str
    jobs: tuple[Job, ...]
    htcondor: tuple[EnvVar, ...] = ()  # lines passed through
    slurm: tuple[EnvVar, ...] = ()
    recovery: Recovery = Recovery()
    host_speeds: tuple[HostSpeed, ...] = ()  # agents ask the quicker sources first
    version: int = PLAN_VERSION
