"""The frozen dataclasses of a plan. Field names are the JSON keys, which docs/formats/plan.md lists.

Types use Optional and Union, because the codec resolves them at run time on Python 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

PLAN_VERSION = 2
_INSTALLED_GROWTH = 4  # packages of 210 MB with PyTorch become 795 MB
_AGENT_SCHEMES = ("http", "https", "osdf", "pelican", "s3")


@dataclass(frozen=True)
class Secret:
    """The name of a file in the run's `secrets/` folder. The value is never part of a plan."""

    name: str


SecretOrStr = Union[str, Secret]


@dataclass(frozen=True)
class Digest:
    """A checksum of a file."""

    algorithm: str  # sha256, md5, crc32c
    value: str  # lower-case hex


@dataclass(frozen=True)
class HttpHeader:
    """An HTTP header whose value may be secret."""

    name: str
    value: SecretOrStr


@dataclass(frozen=True)
class S3Access:
    """Region, endpoint and credentials of an S3 bucket."""

    region: str
    endpoint: str  # https://host[:port]
    access_key: Optional[SecretOrStr] = None  # None: unsigned requests
    secret_key: Optional[SecretOrStr] = None
    session_token: Optional[SecretOrStr] = None


@dataclass(frozen=True)
class Location:
    """A URL (file://, http(s)://, s3://bucket/key, osdf:///path) and the credentials for it."""

    url: str
    headers: tuple[HttpHeader, ...] = ()
    token: Optional[SecretOrStr] = None  # sent as `Authorization: Bearer` to this URL's host only
    s3: Optional[S3Access] = None


@dataclass(frozen=True)
class RemoteFile:
    """One file of an input and all locations that serve it."""

    name: str  # relative to the input's folder
    locations: tuple[Location, ...]
    size: Optional[int] = None  # in bytes, as seen by the planner
    digest: Optional[Digest] = None  # required by the workflow
    checksums: Optional[Location] = None  # its block checksums file, with which only bad blocks are fetched again


@dataclass(frozen=True)
class Input:
    """A set of files that the job needs."""

    name: str  # "" for the workflow's `input`
    folder: str  # relative to the sandbox: "input", "inputs/NAME"
    files: tuple[RemoteFile, ...] = ()
    prefix: Optional[Location] = None  # instead of files: everything below this URL
    unpack: str = "auto"  # auto, never
    nested: bool = False  # a tar of tars: each inner tar becomes a folder
    mode: str = "stage"  # stage, stream
    transfer: str = "auto"  # auto, condor, plugin, agent
    chmod: Optional[int] = None
    snapshot: bool = False  # the run has a copy of its files
    index: Optional[RemoteFile] = (
        None  # with `mode: stream`: the index of the samples in `files`, which are the archives
    )

    @property
    def plugin_schemes(self) -> tuple[str, ...]:
        """The URL schemes that only the pool's own transfer plugins can fetch; () if the agent can fetch all files."""
        if self.transfer != "plugin":
            return ()
        schemes = (file.locations[0].url.partition(":")[0].lower() for file in self.files)
        return tuple(dict.fromkeys(scheme for scheme in schemes if scheme not in _AGENT_SCHEMES))


@dataclass(frozen=True)
class Output:
    """The destination of the output folder: a prefix (file, s3, osdf) or, for http, one URL."""

    location: Location
    continuous_sync: bool = False  # show finished files while the job runs
    delete_sync: bool = False  # when outputs are published, delete everything else at the destination
    retry_timeout_s: Optional[float] = None  # how long the final upload is retried without progress; None: the job's


@dataclass(frozen=True)
class CheckpointConfig:
    """The checkpoint files that the program saves."""

    path: str  # relative to `folder`; may be a glob
    min_interval_s: Optional[float] = None  # minimum time between the starts of two uploads
    more_paths: tuple[str, ...] = ()  # further files of the same checkpoint
    folder: str = "output"  # relative to the sandbox
    when: str = "saved"  # saved: whenever the files changed; exit: after `exit_code`; exitOrEvict: also after a stop
    exit_code: int = 85  # the program's way to say “saved, continue”; 0: it has none

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.more_paths)

    @property
    def is_in_output(self) -> bool:
        """Whether the checkpoint is one of the outputs, and not a file of the working folder."""
        return self.folder == "output"


@dataclass(frozen=True)
class Bound:
    """A finite number that a JSON file must contain."""

    key: str  # keys joined by dots; a number indexes a list, from the end if negative
    min: Optional[float] = None
    max: Optional[float] = None


@dataclass(frozen=True)
class ExpectedOutput:
    """Files that must exist in the output folder at the end."""

    path: str  # a glob relative to the output folder
    min_bytes: int = 1
    max_bytes: Optional[int] = None
    min_count: int = 1
    max_count: Optional[int] = None
    command: str = ""  # run once per file with $PACKTRAIN_FILE set; must exit with 0
    torch: bool = False  # loads with weights_only, has tensors, and all values are finite
    json_bounds: Optional[tuple[Bound, ...]] = None  # is JSON and contains these numbers
    archive: bool = False  # a complete tar, zip, gz, bz2 or xz file


@dataclass(frozen=True)
class GpuRequirements:
    """Minimum properties of each GPU."""

    min_memory_mb: Optional[int] = None
    min_capability: Optional[str] = None  # "8.0"
    min_driver: Optional[str] = None  # "525.60"
    min_cuda: Optional[str] = None  # "12.1"


@dataclass(frozen=True)
class Resources:
    """What the job requests from the engine."""

    tasks: int = 1
    cpus_per_task: int = 1
    mem_per_cpu_mb: int = 1024
    gpus: int = 0  # for the whole job
    gpu: GpuRequirements = GpuRequirements()

    @property
    def cpus(self) -> int:
        return self.tasks * self.cpus_per_task

    @property
    def memory_mb(self) -> int:
        return self.cpus * self.mem_per_cpu_mb


@dataclass(frozen=True)
class Limits:
    """Limits of a job."""

    wall_time_s: Optional[float] = None
    disk_bytes: Optional[int] = None
    max_attempts: int = 3
    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    max_wasted_time_s: Optional[float] = None  # slot time that failed attempts may use in total


@dataclass(frozen=True)
class EnvVar:
    """An environment variable."""

    key: str
    value: SecretOrStr


@dataclass(frozen=True)
class Mount:
    """A host folder mounted into a container."""

    host_dir: str
    container_dir: str
    options: str = "rw"


@dataclass(frozen=True)
class Container:
    """A container image and how to run it."""

    image: str  # as Apptainer accepts it: /path.sif, docker://registry/image:tag, oras://…
    username: Optional[SecretOrStr] = None
    password: Optional[SecretOrStr] = None
    mount_home: bool = False
    read_only: bool = False
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class PixiPackage:
    """One package of a Pixi environment. They are installed in the order of the list: the later one has a file."""

    name: str  # normalized
    version: str
    url: str  # where the lock file has it; empty: a file of the environment's folder
    file_name: str  # the name that the file must have: NAME-VERSION-BUILD.conda, NAME-VERSION-TAGS.whl
    sha256: str
    size: Optional[int] = None  # in bytes; a lock file has no sizes of wheels
    build: str = ""  # of a conda package, e.g. "py312h1_0"
    subdir: str = ""  # of a conda package: linux-64, noarch
    noarch: str = ""  # of a conda package: python, generic; empty: it is for one platform

    @property
    def is_wheel(self) -> bool:
        return self.file_name.endswith(".whl")


@dataclass(frozen=True)
class PixiCommand:
    """One command of a Pixi task."""

    command: str  # for /bin/sh
    env: tuple[EnvVar, ...] = ()
    work_dir: str = ""  # relative to the workspace


@dataclass(frozen=True)
class PixiTask:
    """A task of the workspace, for `pixi run` in a program on the worker."""

    name: str
    commands: tuple[PixiCommand, ...] = ()  # the commands of the tasks it depends on, then its own
    error: str = ""  # why packtrain cannot run it; it has no commands then


@dataclass(frozen=True)
class PixiLock:
    """The file `environment.json` in an environment's folder: what all jobs of the environment share."""

    packages: tuple[PixiPackage, ...]  # in the order of installation
    python: str = ""  # e.g. "3.12"; empty: the environment has no Python
    site_packages: str = ""  # relative to the prefix, e.g. "lib/python3.12/site-packages"
    tasks: tuple[PixiTask, ...] = ()


@dataclass(frozen=True)
class MachineRequirements:
    """What the packages of an environment need of the machine."""

    min_glibc: str = ""  # "2.28"; empty: any
    min_linux: str = ""  # version of the kernel, "4.18"
    min_cuda: str = ""  # the newest CUDA version that the driver supports: "12.4"; empty: no GPU is needed
    archspec: str = ""  # microarchitecture as archspec names it: "x86_64_v3"


@dataclass(frozen=True)
class PixiMirror:
    """A server that has the packages below a URL, too."""

    prefix: str  # the beginning of a package's URL
    location: Location  # what replaces it


@dataclass(frozen=True)
class PixiEnvironment:
    """A locked environment of a Pixi workspace. Its packages are in a file that all jobs share."""

    name: str
    platform: str  # as the lock file names it: linux-64, or a name such as "p2"
    digest: str  # sha256 of the list of packages: equal environments can share one installed prefix
    folder: Location  # has environment.json (a PixiLock) and the packages without a URL
    requires: MachineRequirements = MachineRequirements()
    use: str = "install"  # install: the agent installs the packages; site: the site's own `pixi` does
    workspace: str = ""  # folder of the workspace's files, relative to the sandbox; empty: they are not sent
    manifest: str = "pixi.toml"  # relative to the workspace
    workspace_name: str = ""
    workspace_version: str = ""  # empty: the manifest names none
    platforms: tuple[str, ...] = ()  # all platforms of the environment in the lock file
    activation_scripts: tuple[str, ...] = ()  # relative to the workspace, in their order
    activation_env: tuple[EnvVar, ...] = ()  # a shell expands `$NAME` in the values
    python_path: tuple[str, ...] = ()  # folders for PYTHONPATH, relative to the workspace: its editable packages
    mirrors: tuple[PixiMirror, ...] = ()  # tried before the packages' own URLs
    store: Optional[Location] = None  # the prefix that has packages as SHA256, tried after the mirrors
    n_packages: int = 0
    download_bytes: int = 0  # of packages whose size is known
    n_unknown_sizes: int = 0  # packages whose size is not known

    @property
    def installed_bytes(self) -> int:
        """An estimate: no lock file has this size."""
        return self.download_bytes * _INSTALLED_GROWTH if self.use == "install" else 0


@dataclass(frozen=True)
class EnvironmentConfig:
    """The default environment of `run` steps."""

    container: Optional[Container] = None
    setup: str = ""  # shell lines before each command, e.g. `module load`
    path: tuple[str, ...] = ()  # prepended to PATH
    pixi: Optional[PixiEnvironment] = None  # of commands that do not run in a container
    inherit: tuple[str, ...] = ()  # names or patterns of variables of the shell in which packtrain was called


@dataclass(frozen=True)
class StepResources:
    """Resources of one `run` step."""

    tasks: int = 1
    cpus_per_task: int = 1
    mem_per_cpu_mb: int = 1024
    gpus_per_task: int = 0


@dataclass(frozen=True)
class CollectedOutput:
    """A file of a working folder that becomes an output."""

    path: str  # relative to the working folder; a glob matches new and changed files
    to: str = ""  # relative to the output folder; empty: the last component of the path


@dataclass(frozen=True)
class RunAction:
    """A command."""

    command: str  # empty: the image's entrypoint
    shell: str = "/bin/sh"  # a path, or ENTRYPOINT
    resources: StepResources = StepResources()
    container: Optional[Container] = None
    env: tuple[EnvVar, ...] = ()
    work_dir: str = ""  # absolute, or relative to the sandbox; empty: the sandbox
    stdout: str = ""  # file that also receives the output: below the output folder, or absolute with ${VARIABLES}
    stderr: str = ""
    append_logs: bool = False  # append to absolute `stdout` and `stderr`
    stop_signal: str = ""  # announces the end: B:USR1 to the shell, USR1 to its programs; empty: SIGTERM to all
    collect: tuple[CollectedOutput, ...] = ()  # files that become outputs when the command has ended
    kind: str = field(default="run", init=False)


@dataclass(frozen=True)
class GroupAction:
    """Nested steps."""

    steps: tuple[Step, ...]
    kind: str = field(default="steps", init=False)


@dataclass(frozen=True)
class ForAction:
    """Steps repeated for each value."""

    variable: str  # "item" or "index"
    values: tuple[str, ...]
    parallel: bool
    steps: tuple[Step, ...]
    kind: str = field(default="for", init=False)


@dataclass(frozen=True)
class LaunchAction:
    """Steps that run in the background; later steps of the same level can wait for `handle`."""

    handle: str
    signal_on_parent_exit: int  # sent when the parent level ends; 0: wait for the steps
    steps: tuple[Step, ...]
    kind: str = field(default="launch", init=False)


@dataclass(frozen=True)
class UseAction:
    """A module: a folder or git repository with a `module.yaml`, read by the planner."""

    source: str
    args: tuple[EnvVar, ...]
    export_prefix: str  # outputs of the module are exported as PREFIX_NAME
    steps: tuple[Step, ...]  # the module's steps, with the user's child steps inserted
    outputs: tuple[str, ...] = ()  # variables that the module exports
    kind: str = field(default="use", init=False)


@dataclass(frozen=True)
class Step:
    """One step of a job."""

    name: str
    action: Union[RunAction, GroupAction, ForAction, LaunchAction, UseAction]
    depends_on: tuple[str, ...] = ()
    condition: str = ""  # evaluated in bash's [[ ]]; empty: always
    catch: tuple[Step, ...] = ()
    finally_: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Job:
    """One matrix point of the workflow."""

    id: str  # "0", "1", …
    point: tuple[EnvVar, ...]  # the matrix point, e.g. lr=0.1
    resources: Resources
    limits: Limits
    steps: tuple[Step, ...]
    env: tuple[EnvVar, ...] = ()
    inputs: tuple[Input, ...] = ()
    output: Optional[Output] = None  # None: the run's folder
    expect: tuple[ExpectedOutput, ...] = ()
    checkpoint: Optional[CheckpointConfig] = None
    environment: EnvironmentConfig = EnvironmentConfig()
    retry_timeout_s: float = 300.0  # how long to retry before a 404 or 5xx is final


@dataclass(frozen=True)
class Recovery:
    """How a run reacts to failures."""

    retry_delay_s: float = 2.0  # delay before the next attempt; triples after each further failure
    max_wait_s: float = 120.0
    max_failures: Optional[int] = None  # maximum number of failed attempts of the run
    max_wasted_time_s: Optional[float] = None  # slot time that failed attempts of the run may use in total
    stop_after_identical_failures: int = 3  # stop the run after as many jobs with the same user error; 0: never
    avoid_for_s: float = 3600.0  # how long a failed node is avoided; also the half-life of a site's failures
    max_memory_factor: float = 4.0  # maximum multiple of the planned memory; 1: never more
    max_disk_factor: float = 4.0
    fallback_to_agent: bool = True  # the agent fetches inputs that the pool's plugins failed to fetch
    straggler_budget: float = 0.05  # share of the run's slot time for moving or copying stragglers; 0: never
    min_gain_s: float = 300.0  # minimum time that a straggler must be expected to gain elsewhere
    max_queue_time_s: float = 604800.0  # give up if no node accepts a job of the run for this long


@dataclass(frozen=True)
class HostSpeed:
    """Transfer speed from a host in earlier runs."""

    host: str
    bytes_per_s: int
    site: str = ""  # the site where the jobs ran; "": any


@dataclass(frozen=True)
class Plan:
    """Everything a run does."""

    run: str
    name: str
    engine: str
    jobs: tuple[Job, ...]
    htcondor: tuple[EnvVar, ...] = ()  # extra submit commands
    slurm: tuple[EnvVar, ...] = ()
    recovery: Recovery = Recovery()
    host_speeds: tuple[HostSpeed, ...] = ()  # agents prefer faster sources
    version: int = PLAN_VERSION
