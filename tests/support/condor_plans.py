"""Small plans for tests of the HTCondor engine."""

from __future__ import annotations

from pathlib import Path

from packtrain.plan import (
    Container,
    EnvironmentConfig,
    Input,
    Job,
    Limits,
    Location,
    MachineRequirements,
    Output,
    PixiEnvironment,
    Plan,
    RemoteFile,
    Resources,
    RunAction,
    Step,
)

STEP = Step("train", RunAction("python3 train.py"))


def make_job(number: int = 0, **more) -> Job:
    fields = {"resources": Resources(mem_per_cpu_mb=2000), "limits": Limits(), "steps": (STEP,), **more}
    return Job(str(number), (), **fields)


def make_plan(*jobs: Job, **more) -> Plan:
    return Plan("cifar-x7kq", "cifar", "htcondor", jobs or (make_job(),), **more)


def local_input(path: str | Path, transfer: str = "auto", **more) -> Input:
    return Input("", "input", (RemoteFile(Path(path).name, (Location(f"file://{path}"),)),), transfer=transfer, **more)


def remote_input(url: str = "osdf:///data/x.tar", transfer: str = "auto", **more) -> Input:
    name = url.rpartition("/")[2]
    return Input("", "input", (RemoteFile(name, (Location(url, **more),)),), transfer=transfer)


def container_environment(image: str, **more) -> EnvironmentConfig:
    return EnvironmentConfig(Container(image, **more))


def pixi_environment(folder: Path, **requirements: str) -> EnvironmentConfig:
    requires = MachineRequirements(**requirements)
    return EnvironmentConfig(pixi=PixiEnvironment("gpu", "linux-64", "0" * 64, Location(folder.as_uri()), requires))


def output_at(url: str) -> Output:
    return Output(Location(url))
