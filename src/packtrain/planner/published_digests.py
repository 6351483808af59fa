"""Whether jobs can compare the digests that the workflow states, once the sizes of its inputs are known."""

from __future__ import annotations

from packtrain.plan import Input, Item, Plan
from packtrain.spec.diagnostics import Origin, Problem, Report
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.units import show_size
from packtrain.transfer.crc32c import MOST_BYTES


def digest_problems(plan: Plan, origin: Origin) -> tuple[Problem, ...]:
    """The agent sees no installed modules (it runs with -S), so what is fast on this machine is of no use to it."""
    report = Report(origin)
    for source in (source for job in plan.jobs for source in job.inputs):
        for position, item in enumerate(source.items):
            if item.digest and item.digest.algorithm == "crc32c" and (item.size or 0) > MOST_BYTES:
                report.error(_place(source, position, origin), _words(item), "give its sha256 or md5 instead")
    return report.problems


def _words(item: Item) -> str:
    has, most = show_size(item.size or 0), MOST_BYTES >> 30
    return f"{item.name} has {has}, and a job would take too long to compute a crc32c of more than {most} GiB"


def _place(source: Input, position: int, origin: Origin) -> Keys:
    """A plan does not say where in the workflow an item's digest stands."""
    top: Keys = ("inputs", source.name) if source.name else ("input",)
    ways: tuple[Keys, ...] = (("http", "files", position), ("http",), ("osdf",))
    places = [(*top, *way, "crc32c") for way in ways]
    return next((place for place in places if place in origin.values), top)
