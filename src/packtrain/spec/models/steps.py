"""Models of steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from packtrain.spec.models.field_types import (
    AbsolutePath,
    EnvKey,
    Identifier,
    Int,
    LogPath,
    Megabytes,
    NonEmptyPath,
    NonNegativeInt,
    PositiveInt,
    RelativePath,
    SignalName,
    SpecModel,
    Str,
    StrOrEmpty,
    check_relative_path,
)

MAX_LOOP_ITERATIONS = 10_000
CHILDREN_MARKER = "{{ .Step.Steps }}"
"""Where a module runs the steps of its user."""
RENDERED_CHILDREN_MARKER = "<steps of the user>"
"""The same, where a template inserts them: plain text in YAML, with and without quotes."""


class EnvVar(SpecModel):
    """An environment variable."""

    key: EnvKey
    """Its name; PATH and LD_LIBRARY_PATH are rejected."""
    value: StrOrEmpty
    """Its value; may be a secret."""


class Mount(SpecModel):
    """A folder of the node mounted into the container."""

    host_dir: AbsolutePath
    """Folder on the node."""
    container_dir: AbsolutePath
    """Folder in the container."""
    options: Literal["ro", "rw"]
    """ro or rw."""


class Container(SpecModel):
    """The image that a command runs in."""

    image: NonEmptyPath
    """IMAGE:TAG, an absolute path to a .sif or .sqsh file, or a URL such as oras://…"""
    registry: Str = "registry-1.docker.io"
    """Registry of IMAGE:TAG."""
    username: Str | None = None
    """User name for the registry; may be a secret."""
    password: Str | None = None
    """Password for the registry, a secret."""
    apptainer: bool | None = None
    """Run with Apptainer; packtrain always does."""
    deepsquare_hosted: bool = False
    """The image is on DeepSquare's own machines: an error unless it has a path, or `--no-container` is given."""
    x11: bool = False
    """Mount the X11 socket (not supported)."""
    mount_home: bool = False
    """Mount the home folder."""
    read_only_root_fs: bool = Field(default=False, alias="readOnlyRootFS")
    """Make the container's root read-only."""
    mounts: tuple[Mount, ...] = ()
    """Folders of the node mounted into the container (deprecated by DeepSquare, supported)."""


def _check_work_dir(value: str) -> str:
    return value if value.startswith("/") and "\0" not in value else check_relative_path(value)


class StepResources(SpecModel):
    """The part of the job's resources that one `run` uses."""

    tasks: PositiveInt | None = None
    """Number of parallel processes of the command (1)."""
    cpus_per_task: PositiveInt | None = None
    """CPUs per task (default: the job's)."""
    mem_per_cpu: Megabytes | None = None
    """Megabytes per CPU (default: the job's)."""
    gpus_per_task: NonNegativeInt | None = None
    """GPUs per task (0)."""


class WireguardPeer(SpecModel):
    """A peer of a WireGuard interface."""

    public_key: Str
    """Public key of the peer."""
    pre_shared_key: Str | None = None
    """Pre-shared key."""
    endpoint: Str | None = None
    """HOST:PORT of the peer."""
    allowed_ips: tuple[Str, ...] = Field(default=(), alias="allowedIPs")
    """Address ranges behind the peer."""
    persistent_keepalive: NonNegativeInt | None = None
    """Seconds between keep-alive packets."""


class Wireguard(SpecModel):
    """A WireGuard interface."""

    address: tuple[Str, ...] = ()
    """Addresses of the interface."""
    private_key: Str
    """Private key of the interface."""
    peers: tuple[WireguardPeer, ...] = ()
    """Its peers."""


class Bore(SpecModel):
    """A tunnel through a bore server."""

    bore_address: Str | None = None
    """HOST:PORT of the server."""
    address: Str | None = None
    """Older name of the server's address."""
    port: NonNegativeInt | None = None
    """Older name of the server's port."""
    target_port: NonNegativeInt
    """Port that is made reachable."""
    secret: Str | None = None
    """Secret of the server."""


class Vnet(SpecModel):
    """An address in a virtual network."""

    name: Str
    """Name of the virtual network."""
    address: Str
    """Address in it."""


class NetworkInterface(SpecModel):
    """A network interface of a container (not supported). One of `wireguard`, `bore`, `vnet`."""

    wireguard: Wireguard | None = None
    """A WireGuard interface."""
    bore: Bore | None = None
    """A bore tunnel."""
    vnet: Vnet | None = None
    """A virtual network."""


class CollectedOutput(SpecModel):
    """A file or folder of the working folder that becomes an output."""

    path: RelativePath
    """Relative to the working folder. A pattern such as *.pt matches new and changed files."""
    to: RelativePath | None = None
    """Its name below the output folder (default: the last part of its path)."""


def _text_to_collected_output(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class RunAction(SpecModel):
    """A command, on the node or in a container. Give one of `command`, `task`."""

    command: StrOrEmpty = ""
    """Shell command; empty: the image's own entrypoint."""
    task: Str | None = None
    """A task of the Pixi environment: its commands, variables and folder, and the tasks it depends on."""
    args: tuple[StrOrEmpty, ...] = ()
    """Arguments of the task."""
    shell: Literal["/bin/sh", "/bin/bash", "/bin/ash", "ENTRYPOINT"] = "/bin/sh"
    """The shell; ENTRYPOINT passes the command to the image's entrypoint."""
    resources: StepResources | None = None
    """The part of the job's resources that it uses."""
    container: Container | None = None
    """Image to run in; without one, on the node itself."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables of this command, which override all others."""
    work_dir: Annotated[Str, AfterValidator(_check_work_dir)] | None = None
    """Working folder: absolute, or relative to $STORAGE_PATH, which is the default."""
    stdout: LogPath | None = None
    """Also write standard output to this file of the output folder. An absolute path is written while the command runs,
    and may have variables of the step: ${NAME} or ${NAME:-DEFAULT}."""
    stderr: LogPath | None = None
    """The same for standard error."""
    append_logs: bool = False
    """Append to `stdout` and `stderr` with absolute paths, instead of replacing these files."""
    collect: tuple[
        Annotated[
            CollectedOutput, BeforeValidator(_text_to_collected_output, json_schema_input_type=Str | CollectedOutput)
        ],
        ...,
    ] = ()
    """Files of the working folder that become outputs when the command has ended; * matches all new ones at its top."""
    stop_signal: SignalName | None = None
    """Signal that announces the end of the job, as in sbatch: B:USR1 to the shell, USR1 to its programs; default:
    SIGTERM to all."""
    network: Literal["host", "slirp4netns", "pasta"] = "host"
    """Network of the container; packtrain always uses the host's."""
    dns: tuple[Str, ...] = ()
    """Name servers (not supported)."""
    custom_network_interfaces: tuple[NetworkInterface, ...] = ()
    """Network interfaces of the container (not supported)."""
    map_uid: Int | None = None
    """User id inside the container (not supported)."""
    map_gid: Int | None = None
    """Group id inside the container (not supported)."""
    disable_cpu_binding: bool = False
    """Do not pin tasks to CPUs; packtrain never pins them."""
    mpi: Literal["none", "pmix_v4", "pmi2"] = "none"
    """MPI kind; only none is supported."""


def _reject_zero(value: int) -> int:
    if value == 0:
        raise ValueError("should not be 0: the loop would never end")
    return value


class LoopRange(SpecModel):
    """Numbers of a loop; `end` is included."""

    begin: Int
    """First number."""
    end: Int
    """Last number, included."""
    increment: Annotated[Int, AfterValidator(_reject_zero)] = 1
    """Step from one number to the next; may be negative."""

    def to_range(self) -> range:
        return range(self.begin, self.end + (1 if self.increment > 0 else -1), self.increment)

    @model_validator(mode="after")
    def _check_length(self) -> LoopRange:
        if len(self.to_range()) > MAX_LOOP_ITERATIONS:
            raise ValueError(
                f"{len(self.to_range())} iterations are too many; a loop may have at most {MAX_LOOP_ITERATIONS}"
            )
        return self


class ForAction(SpecModel):
    """Steps repeated for each value. Give one of `items`, `range`."""

    parallel: bool
    """All at once, or one after the other."""
    items: tuple[StrOrEmpty, ...] | None = None
    """Texts; each iteration has its own in $item."""
    range: LoopRange | None = None
    """Numbers; each iteration has its own in $index."""
    steps: tuple[StepEntry, ...]
    """Steps of each iteration."""


class LaunchAction(SpecModel):
    """Steps that run in the background."""

    handle_name: Identifier | None = None
    """Name by which later steps of the same level wait for these (`dependsOn`)."""
    signal_on_parent_step_exit: Annotated[Int, Field(ge=0, le=64)] | None = None
    """Signal sent when the parent level ends (default SIGTERM); 0: wait for the steps instead."""
    steps: tuple[StepEntry, ...]
    """Steps that run in the background."""


class UseAction(SpecModel):
    """A module: reusable steps."""

    source: NonEmptyPath
    """A git URL[/FOLDER][@TAG or @COMMIT], or a folder relative to the workflow file, with a module.yaml."""
    args: tuple[EnvVar, ...] = ()
    """Values of the module's inputs."""
    export_env_as: Identifier | None = None
    """Prefix of the variables in which the module's outputs are exported."""
    steps: tuple[StepEntry, ...] = ()
    """Steps that the module runs at its marker."""


class Step(SpecModel):
    """Give one of `run`, `steps`, `for`, `launch`, `use`."""

    name: Str | None = None
    """Name in logs and views."""
    depends_on: tuple[Str, ...] = ()
    """Handle names of earlier `launch` steps of this level that must have ended."""
    if_: Str | None = Field(default=None, alias="if")
    """Condition in bash's [[ ]], evaluated after `dependsOn`; the step is skipped if it is false."""
    resources: StepResources | None = None
    """The same as `run.resources`, which takes precedence."""
    run: RunAction | None = None
    """A command."""
    steps: tuple[StepEntry, ...] | None = None
    """A group of steps, one after the other."""
    for_: ForAction | None = Field(default=None, alias="for")
    """A loop."""
    launch: LaunchAction | None = None
    """Steps that run in the background."""
    use: UseAction | None = None
    """A module."""
    catch: tuple[StepEntry, ...] = ()
    """Steps that run if this one fails; $DEEPSQUARE_ERROR_CODE has its exit code."""
    finally_: tuple[StepEntry, ...] = Field(default=(), alias="finally")
    """Steps that always run afterwards."""


def _expand_children_marker(value: Any) -> Any:
    return {"name": CHILDREN_MARKER, "steps": []} if is_children_marker(value) else value


def is_children_marker(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return value == RENDERED_CHILDREN_MARKER or value.replace(" ", "") == CHILDREN_MARKER.replace(" ", "")


StepEntry = Annotated[Step, BeforeValidator(_expand_children_marker)]

for _model in (ForAction, LaunchAction, UseAction, Step):
    _model.model_rebuild()
