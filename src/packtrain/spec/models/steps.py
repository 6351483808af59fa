"""What a job does: `steps` and all their kinds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from packtrain.spec.models.field_types import (
    AbsolutePath,
    EnvKey,
    Identifier,
    Int,
    Megabytes,
    NonEmptyPath,
    NonNegativeInt,
    PositiveInt,
    RelativePath,
    SpecModel,
    Str,
    StrOrEmpty,
    check_relative_path,
)

MAX_LOOP_ITERATIONS = 10_000
CHILDREN_MARKER = "{{ .Step.Steps }}"
"""In a module: the place of the steps that its user gives."""


class EnvVar(SpecModel):
    """An environment variable."""

    key: EnvKey
    """Its name; PATH and LD_LIBRARY_PATH are refused."""
    value: StrOrEmpty
    """Its value; may be a secret."""


class Mount(SpecModel):
    """A folder of the machine inside the container."""

    host_dir: AbsolutePath
    """Folder of the machine."""
    container_dir: AbsolutePath
    """Where the container sees it."""
    options: Literal["ro", "rw"]
    """ro or rw."""


class Container(SpecModel):
    """The image that a command runs in."""

    image: NonEmptyPath
    """IMAGE:TAG, an absolute path to a .sif or .sqsh file, or an address such as oras://…"""
    registry: Str = "registry-1.docker.io"
    """Registry of IMAGE:TAG."""
    username: Str | None = None
    """User name for the registry; may be a secret."""
    password: Str | None = None
    """Password for the registry, a secret."""
    apptainer: bool | None = None
    """Run with Apptainer; packtrain always does."""
    deepsquare_hosted: bool = False
    """The image lies in DeepSquare's own registry (not supported)."""
    x11: bool = False
    """Mount the X11 socket (not supported)."""
    mount_home: bool = False
    """Show the home folder inside the container."""
    read_only_root_fs: bool = Field(default=False, alias="readOnlyRootFS")
    """Make the container's root read-only."""
    mounts: tuple[Mount, ...] = ()
    """Folders of the machine inside the container (deprecated by DeepSquare, works)."""


def _check_work_dir(value: str) -> str:
    return value if value.startswith("/") and "\0" not in value else check_relative_path(value)


class StepResources(SpecModel):
    """What one `run` takes of the job's resources."""

    tasks: PositiveInt | None = None
    """How many times the command runs, side by side (1)."""
    cpus_per_task: PositiveInt | None = None
    """CPUs for each; default: the job's."""
    mem_per_cpu: Megabytes | None = None
    """Megabytes for each CPU; default: the job's."""
    gpus_per_task: NonNegativeInt | None = None
    """GPUs for each (0)."""


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
    """A place in one of the workflow's virtual networks."""

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
    """A file or folder of the working folder that is an output."""

    path: RelativePath
    """Below the working folder. A pattern such as *.pt means files that are new or changed."""
    to: RelativePath | None = None
    """Its name below the output folder; by default the last part of its path."""


def _text_to_collected_output(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class RunAction(SpecModel):
    """A command, on the machine or in a container."""

    command: StrOrEmpty
    """Shell command; empty: the image's own entrypoint."""
    shell: Literal["/bin/sh", "/bin/bash", "/bin/ash", "ENTRYPOINT"] = "/bin/sh"
    """What reads the command; ENTRYPOINT hands it to the image's entrypoint."""
    resources: StepResources | None = None
    """What the command takes of the job's resources."""
    container: Container | None = None
    """Image to run in; none: on the machine itself."""
    env: tuple[EnvVar, ...] = ()
    """Variables of this command; they win over all others."""
    work_dir: Annotated[Str, AfterValidator(_check_work_dir)] | None = None
    """Folder to run in: absolute, or below $STORAGE_PATH, which is the default."""
    stdout: RelativePath | None = None
    """Keep what the command prints also as this file of the output folder."""
    stderr: RelativePath | None = None
    """The same for its standard error."""
    collect: tuple[
        Annotated[
            CollectedOutput, BeforeValidator(_text_to_collected_output, json_schema_input_type=Str | CollectedOutput)
        ],
        ...,
    ] = ()
    """Files of the working folder that become outputs when the command has ended; * means all new ones at its top."""
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
    """Numbers for a loop; `end` belongs to it."""

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
                f"{len(self.to_range())} rounds are too many for one loop, which has at most {MAX_LOOP_ITERATIONS}"
            )
        return self


class ForAction(SpecModel):
    """The same steps several times. Give one of `items`, `range`."""

    parallel: bool
    """All at once, or one after the other."""
    items: tuple[StrOrEmpty, ...] | None = None
    """Texts; each round sees its own in $item."""
    range: LoopRange | None = None
    """Numbers; each round sees its own in $index."""
    steps: tuple[StepEntry, ...]
    """Steps of each round."""


class LaunchAction(SpecModel):
    """Steps in the background."""

    handle_name: Identifier | None = None
    """Name by which later steps of the same level wait for these (`dependsOn`)."""
    signal_on_parent_step_exit: Annotated[Int, Field(ge=0, le=64)] | None = None
    """Signal when the level above ends; absent: SIGTERM; 0: none, they are awaited."""
    steps: tuple[StepEntry, ...]
    """Steps that run in the background."""


class UseAction(SpecModel):
    """A module: steps that somebody else wrote."""

    source: NonEmptyPath
    """Git address@TAG, or a folder relative to the workflow file; it has a module.yaml."""
    args: tuple[EnvVar, ...] = ()
    """Values of the module's inputs."""
    export_env_as: Identifier | None = None
    """The module's outputs become PREFIX_NAME with this prefix."""
    steps: tuple[StepEntry, ...] = ()
    """Steps that the module runs in its midst."""


class Step(SpecModel):
    """Give one of `run`, `steps`, `for`, `launch`, `use`."""

    name: Str | None = None
    """Name in logs and views."""
    depends_on: tuple[Str, ...] = ()
    """Handle names of earlier `launch` steps of this level that must have ended."""
    if_: Str | None = Field(default=None, alias="if")
    """Condition in bash's [[ ]], looked at after `dependsOn`; the step is skipped unless it holds."""
    resources: StepResources | None = None
    """The same as `run.resources`, which wins."""
    run: RunAction | None = None
    """A command."""
    steps: tuple[StepEntry, ...] | None = None
    """A group of steps, one after the other."""
    for_: ForAction | None = Field(default=None, alias="for")
    """A loop."""
    launch: LaunchAction | None = None
    """Steps in the background."""
    use: UseAction | None = None
    """A module."""
    catch: tuple[StepEntry, ...] = ()
    """Steps for when this one fails; $DEEPSQUARE_ERROR_CODE has its exit code."""
    finally_: tuple[StepEntry, ...] = Field(default=(), alias="finally")
    """Steps that run afterwards in any case."""


def _expand_children_marker(value: Any) -> Any:
    return {"name": CHILDREN_MARKER, "steps": []} if is_children_marker(value) else value


def is_children_marker(value: Any) -> bool:
    return isinstance(value, str) and value.replace(" ", "") == CHILDREN_MARKER.replace(" ", "")


StepEntry = Annotated[Step, BeforeValidator(_expand_children_marker)]

for _model in (ForAction, LaunchAction, UseAction, Step):
    _model.model_rebuild()
