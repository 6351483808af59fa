"""Slots never exceed the machine, no GPU is allocated twice, and everything is free again at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.local.slot_allocator import SlotAllocation, SlotAllocator
from packtrain.plan import Resources

RESOURCES = st.builds(
    Resources,
    tasks=st.integers(1, 3),
    cpus_per_task=st.integers(1, 6),
    mem_per_cpu_mb=st.integers(0, 3000),
    gpus=st.integers(0, 5),
)
ALLOCATORS = st.builds(SlotAllocator, cpus=st.integers(1, 16), memory_mb=st.integers(1, 16000), gpus=st.integers(0, 4))


@given(ALLOCATORS, st.lists(st.tuples(RESOURCES, st.integers(0, 3))))
def test_never_over_capacity(allocator: SlotAllocator, work: list[tuple[Resources, int]]) -> None:
    allocations: list[SlotAllocation] = []
    for requested, n_releases in work:
        allocation = allocator.allocate(requested)
        allocations += [allocation] if allocation else []
        gpus = [gpu for allocation in allocations for gpu in allocation.gpus]
        assert sum(allocation.cpus for allocation in allocations) <= allocator.cpus
        assert sum(allocation.memory_mb for allocation in allocations) <= allocator.memory_mb
        assert len(gpus) == len(set(gpus)) and set(gpus) <= set(range(allocator.gpus))
        for _ in range(min(n_releases, len(allocations))):
            allocator.release(allocations.pop(0))
    for allocation in allocations:
        allocator.release(allocation)
    assert allocator.allocate(Resources(cpus_per_task=10**6, mem_per_cpu_mb=10**6, gpus=10**6)) == SlotAllocation(
        allocator.cpus, allocator.memory_mb, tuple(range(allocator.gpus))
    )


@given(ALLOCATORS, RESOURCES)
def test_empty_machine_takes_any_job(allocator: SlotAllocator, requested: Resources) -> None:
    allocation = allocator.allocate(requested)
    assert allocation is not None
    assert allocation.cpus == min(requested.cpus, allocator.cpus)
    assert len(allocation.gpus) == min(requested.gpus, allocator.gpus)


@given(ALLOCATORS, RESOURCES)
def test_job_that_needs_all_cpus_runs_alone(allocator: SlotAllocator, requested: Resources) -> None:
    assert allocator.allocate(Resources(cpus_per_task=allocator.cpus)) is not None
    assert allocator.allocate(requested) is None
