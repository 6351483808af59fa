"""Small plans for tests of the HTCondor engine."""

from __future__ import annotations

from pathlib import Path

from packtrain.plan import Container, Environment, Input, Item, Job, Limits, Output, Plan, Ref, Resources, Run, Step

STEP = Step("train", Run("python3 train.py"))


def job(number: int = 0, **more) -> Job:
    given = {"resources": Resources(mem_per_cpu_mb=2000), "limits": Limits(), "steps": (STEP,), **more}
    return Job(str(number), (), **given)


def plan(*jobs: Job, **more) -> Plan:
    return Plan("cifar-x7kq", "cifar", "htcondor", jobs or (job(),), **more)


def local(path: str | Path, delivery: str = "auto", **more) -> Input:
    return Input("", "input", (Item(Path(path).name, (Ref(f"file://{path}"),)),), delivery=delivery, **more)


def remote(url: str = "osdf:///data/x.tar", delivery: str = "auto", **more) -> Input:
    name = url.rpartition("/")[2]
    return Input("", "input", (Item(name, (Ref(url, **more),)),), delivery=delivery)


def contained(image: str, **more) -> Environment:
    return Environment(Container(image, **more))


def at(url: str) -> Output:
    return Output(Ref(url))
