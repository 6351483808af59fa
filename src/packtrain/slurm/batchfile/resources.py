"""Translates what a batch script requests: CPUs, memory, GPUs and time.

Slurm gets the options as they are. `resources` of the workflow has the same amounts, for one node, so that the local
engine, the plan and the agent's check of the node know them.
"""

from __future__ import annotations

import math

from packtrain.slurm.batchfile import values
from packtrain.slurm.batchfile.parsed_batch import ParsedBatch
from packtrain.spec.converted_file import WorkflowDraft

_DEFAULT_MEMORY_MB = 1024  # Slurm's own default differs from site to site
_GPU_OPTIONS = ("gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket")
_MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")


def add_resources(batch: ParsedBatch, draft: WorkflowDraft) -> None:
    """Add `resources` and `limits` to the workflow."""
    nodes = batch.parse("nodes", values.parse_node_count, 1)
    n_tasks = _tasks_per_node(batch, nodes)
    cpus = batch.parse("cpus-per-task", values.parse_count, 1)
    gpus = _gpus_per_node(batch, nodes, n_tasks)
    memory_mb = _memory_per_node_mb(batch, n_tasks * cpus, gpus)
    amounts = (
        ("tasks", n_tasks, batch.position("ntasks-per-node", "ntasks", "nodes")),
        ("cpusPerTask", cpus, batch.position("cpus-per-task")),
        ("memPerCpu", math.ceil(memory_mb / (n_tasks * cpus)), batch.position(*_MEMORY_OPTIONS)),
        ("gpus", gpus, batch.position("gres", *_GPU_OPTIONS)),
    )
    for key, amount, position in amounts:
        draft.set_value(("resources", key), amount, position)
    time_limit_s = batch.parse("time", values.parse_time_limit, None)
    if time_limit_s:
        draft.set_value(("limits", "wallTime"), int(time_limit_s), batch.position("time"))


def _tasks_per_node(batch: ParsedBatch, nodes: int) -> int:
    per_node = batch.parse("ntasks-per-node", values.parse_count, 0)
    return per_node or math.ceil(batch.parse("ntasks", values.parse_count, nodes) / nodes)


def _gpus_per_node(batch: ParsedBatch, nodes: int, n_tasks: int) -> int:
    per_node = batch.parse("gpus-per-node", values.parse_gpu_count, 0)
    per_job = batch.parse("gpus", values.parse_gpu_count, 0)
    per_task = batch.parse("gpus-per-task", values.parse_gpu_count, 0)
    per_socket = batch.parse("gpus-per-socket", values.parse_gpu_count, 0)
    in_gres = batch.parse("gres", values.parse_gres_gpus, 0)
    return per_node or math.ceil(per_job / nodes) or per_task * n_tasks or per_socket or in_gres


def _memory_per_node_mb(batch: ParsedBatch, cpus: int, gpus: int) -> int:
    given = [name for name in _MEMORY_OPTIONS if batch.has(name)]
    if len(given) > 1:
        batch.error(given[-1], f"sbatch does not accept --{given[0]} together with --{given[1]}", "remove one of them")
    per_node = batch.parse("mem", values.parse_memory_mb, 0)
    per_cpu = batch.parse("mem-per-cpu", values.parse_memory_mb, 0)
    per_gpu = batch.parse("mem-per-gpu", values.parse_memory_mb, 0)
    return per_node or per_cpu * cpus or per_gpu * gpus or _DEFAULT_MEMORY_MB
