"""Slots: never more taken than there is, no GPU twice, and everything free again at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.local.slot_allocator import SlotAllocation, SlotAllocator
from packtrain.plan import Resources

NEEDS = st.builds(
    Resources,
    tasks=st.integers(1, 3),
    cpus_per_task=st.integers(1, 6),
    mem_per_cpu_mb=st.integers(0, 3000),
    gpus=st.integers(0, 5),
)
MACHINES = st.builds(SlotAllocator, cpus=st.integers(1, 16), memory_mb=st.integers(1, 16000), gpus=st.integers(0, 4))


@given(MACHINES, st.lists(st.tuples(NEEDS, st.integers(0, 3))))
def test_never_over_capacity(slots: SlotAllocator, work: list[tuple[Resources, int]]) -> None:
    held: list[SlotAllocation] = []
    for need, give_back in work:
        share = slots.allocate(need)
        held += [share] if share else []
        gpus = [gpu for one in held for gpu in one.gpus]
        assert sum(one.cpus for one in held) <= slots.cpus
        assert sum(one.memory_mb for one in held) <= slots.memory_mb
        assert len(gpus) == len(set(gpus)) and set(gpus) <= set(range(slots.gpus))
        for _ in range(min(give_back, len(held))):
            slots.release(held.pop(0))
    for one in held:
        slots.release(one)
    assert slots.allocate(Resources(cpus_per_task=10**6, mem_per_cpu_mb=10**6, gpus=10**6)) == SlotAllocation(
        slots.cpus, slots.memory_mb, tuple(range(slots.gpus))
    )


@given(MACHINES, NEEDS)
def test_any_job_gets_a_share_of_an_empty_machine(slots: SlotAllocator, need: Resources) -> None:
    share = slots.allocate(need)
    assert share is not None
    assert share.cpus == min(need.cpus, slots.cpus)
    assert len(share.gpus) == min(need.gpus, slots.gpus)


@given(MACHINES, NEEDS)
def test_one_that_needs_all_of_it_runs_alone(slots: SlotAllocator, need: Resources) -> None:
    assert slots.allocate(Resources(cpus_per_task=slots.cpus)) is not None
    assert slots.allocate(need) is None
