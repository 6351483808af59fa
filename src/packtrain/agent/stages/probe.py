"""Is this machine fit for the job? Asked within seconds, before any data moves.

All questions are asked at once, each in a thread that is left behind if it hangs (a dead file
server, a broken driver). What the figures mean is decided afterwards, purely. Unreachable inputs are
news, not a verdict: a service that restarts now may well answer a minute later.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from packtrain.agent.context import Context, Tally
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.stages import hardware
from packtrain.agent.stages.hardware import Gpu
from packtrain.errors import FailedError
from packtrain.plan import GpuNeeds, Input, Job, Ref
from packtrain.transfer.api import Reveal
from packtrain.transfer.archive.detection import may_stream
from packtrain.transfer.registry import source_for
from packtrain.transfer.urls import shown

_PATIENCE_S = 4.5
_ASK_AT_ONCE = 8
_ASK_AT_MOST = 64  # inputs of thousands of files: the first ones tell enough
_MEMORY_SHARE = 0.9  # the kernel and the firmware keep some of what a machine is sold with
_GB = 10**9
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zip")

Topic = tuple[str, str]  # ("machine", "disk_free"), ("input", URL)
Question = Callable[[], Any]


def probe(context: Context, tally: Tally) -> None:
    """Make the sandbox and look around. Raises FailedError: disk_full, memory_short, gpu_unusable."""
    job, box = context.job, context.box
    box.create()
    answers = ask({**_about_machine(job, box), **_about_inputs(job, context.secrets.reveal)}, context)
    inputs = {url: answer for (topic, url), answer in answers.items() if topic == "input"}
    about = {what: answer for (topic, what), answer in answers.items() if topic == "machine"}
    known = {what: answer for what, answer in about.items() if not isinstance(answer, Exception)}
    tally.update(_figures(known), inputs=[_told(url, answer) for url, answer in inputs.items()])
    for sentence in (*_unknown(about), *known.get("quirks", ()), *_unreachable(inputs)):
        context.notice("probe", sentence)
    sizes = {url: answer for url, answer in inputs.items() if isinstance(answer, int)}
    need = disk_need(job, sizes, streams=context.depot is None)
    _judge(job, known, need)


def ask(questions: Mapping[Topic, Question], context: Context) -> dict[Topic, Any]:
    """Answers by topic, as far as they come in time; an exception that a question raises is its answer."""
    waiting: queue.SimpleQueue[tuple[Topic, Question]] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[Topic, Any]] = queue.SimpleQueue()
    for item in questions.items():
        waiting.put(item)
    for _ in range(min(len(questions), _ASK_AT_ONCE)):
        threading.Thread(target=_answer, args=(waiting, answered), name="probe", daemon=True).start()
    answers = dict(_collect(answered, len(questions), context))
    if len(answers) < len(questions):
        late = [shown(what) for topic, what in questions if (topic, what) not in answers]
        context.notice("probe", f"no answer within {_PATIENCE_S:g} s about {', '.join(late[:3])} ({len(late)} in all)")
    return answers


def _answer(waiting: queue.SimpleQueue[Any], answered: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            topic, question = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            answered.put((topic, question()))
        except Exception as error:
            answered.put((topic, error))


def _collect(answered: queue.SimpleQueue[Any], count: int, context: Context) -> list[tuple[Topic, Any]]:
    found: list[tuple[Topic, Any]] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        context.stop.check()
        try:
            found.append(answered.get(timeout=0.1))
        except queue.Empty:
            continue
    return found


def _about_machine(job: Job, box: Sandbox) -> dict[Topic, Question]:
    questions: dict[str, Question] = {
        "disk_free": lambda: hardware.disk_free(box.root),
        "memory_mb": hardware.memory_mb,
        "quirks": lambda: _quirks(box),
    }
    if job.resources.gpus:
        questions["gpus"] = lambda: hardware.gpus(os.environ)
    if job.resources.gpus and job.resources.gpu.min_cuda:
        questions["cuda"] = lambda: hardware.cuda_version(os.environ)
    return {("machine", what): question for what, question in questions.items()}


def _quirks(box: Sandbox) -> list[str]:
    folders = {folder.stat().st_dev: folder for folder in (box.home.root, box.root)}
    return [f"the file system of {folder} {what}" for folder in folders.values() for what in hardware.quirks(folder)]


def _about_inputs(job: Job, reveal: Reveal) -> dict[Topic, Question]:
    refs = [(ref, _stat) for source in job.inputs for item in source.items for ref in item.sources[:1]]
    refs += [(source.prefix, _first_of) for source in job.inputs if source.prefix]
    return {("input", ref.url): _question(how, ref, reveal) for ref, how in refs[:_ASK_AT_MOST]}


def _question(how: Callable[[Ref, Reveal], Any], ref: Ref, reveal: Reveal) -> Question:
    return lambda: how(ref, reveal)


def _stat(ref: Ref, reveal: Reveal) -> int | None:
    return source_for(ref, reveal).stat(ref).size


def _first_of(ref: Ref, reveal: Reveal) -> None:
    next(iter(source_for(ref, reveal).list(ref)), None)


def _figures(known: Mapping[str, Any]) -> Tally:
    return {
        "python": sys.version.split()[0],
        "platform": hardware.platform(),
        "host": os.uname().nodename,
        "cpus": len(os.sched_getaffinity(0)),
        "disk_free": known.get("disk_free"),
        "memory_mb": known.get("memory_mb"),
        "gpus": [vars(gpu) for gpu in known.get("gpus", ())],
    }


def _told(url: str, answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"url": shown(url), "problem": getattr(answer, "kind", "internal"), "detail": str(answer)}
    return {"url": shown(url), "size": answer}


def _unknown(about: Mapping[str, Any]) -> list[str]:
    problems = {what: answer for what, answer in about.items() if isinstance(answer, Exception)}
    return [f"the {what} of this machine could not be found out: {error}" for what, error in problems.items()]


def _unreachable(inputs: Mapping[str, Any]) -> list[str]:
    """One sentence for each kind of trouble, however many inputs have it."""
    troubled: dict[str, list[str]] = {}
    for answer in inputs.values():
        if isinstance(answer, Exception):
            troubled.setdefault(getattr(answer, "kind", "internal"), []).append(str(answer))
    return [f"{details[0]}{_and_more(len(details) - 1)}" for details in troubled.values()]


def _and_more(count: int) -> str:
    return f" (and {count} more inputs)" if count else ""


def disk_need(job: Job, seen: Mapping[str, int], streams: bool = True) -> int:
    """Bytes the job is known to need: its inputs, archives that come as files twice (with what is in them), or its
    limit."""
    inputs = sum(_need_of(source, seen, streams) for source in job.inputs)
    return max(inputs, job.limits.disk_bytes or 0)


def _need_of(source: Input, seen: Mapping[str, int], streams: bool) -> int:
    total = 0
    for item in source.items if source.mode != "stream" else ():
        size = item.size if item.size is not None else seen.get(item.sources[0].url)
        archive = source.unpack == "auto" and item.name.lower().endswith(_ARCHIVES)
        total += (size or 0) * (2 if archive and not (streams and may_stream(source, item)) else 1)
    return total


def _judge(job: Job, known: Mapping[str, Any], need: int) -> None:
    verdicts = (
        disk_verdict(known.get("disk_free"), need),
        memory_verdict(known.get("memory_mb"), job.resources.memory_mb),
        gpu_verdict(known.get("gpus", ()), known.get("cuda", ""), job.resources.gpus, job.resources.gpu),
    )
    for verdict in verdicts:
        if verdict is not None:
            raise verdict


def disk_verdict(free: int | None, need: int) -> FailedError | None:
    if free is None or free >= need:
        return None
    return FailedError(
        "disk_full", f"the job needs {need / _GB:.3f} GB of disk, but the scratch has {free / _GB:.3f} GB free"
    )


def memory_verdict(have_mb: int | None, need_mb: int) -> FailedError | None:
    if have_mb is None or have_mb >= need_mb * _MEMORY_SHARE:
        return None
    return FailedError("memory_short", f"the job needs {need_mb} MB of memory, but may use only {have_mb} MB here")


def gpu_verdict(gpus: Sequence[Gpu], cuda: str, count: int, needs: GpuNeeds) -> FailedError | None:
    """Enough GPUs must meet every need; a figure that the driver does not tell is not held against it."""
    lacks = {f"{gpu.name} ({gpu.uuid})": lacking(gpu, cuda, needs) for gpu in gpus}
    good = sum(not lack for lack in lacks.values())
    if good >= count:
        return None
    seen = "; ".join(f"{name}: {lack or 'good'}" for name, lack in lacks.items()) or "nvidia-smi shows none"
    return FailedError("gpu_unusable", f"the job needs {count} GPUs, but {good} usable ones were found ({seen})")


def lacking(gpu: Gpu, cuda: str, needs: GpuNeeds) -> str:
    """What this GPU lacks, with figures; "" if nothing."""
    compared = (
        ("memory in MB", str(gpu.memory_mb), str(needs.min_memory_mb or "")),
        ("compute capability", gpu.capability, needs.min_capability or ""),
        ("driver", gpu.driver, needs.min_driver or ""),
        ("CUDA version", cuda, needs.min_cuda or ""),
    )
    lacks = [(what, have, need) for what, have, need in compared if have and need and _version(have) < _version(need)]
    return ", ".join(f"{what} is {have}, needed is {need}" for what, have, need in lacks)


def _version(text: str) -> tuple[int, ...]:
    parts = [int(part) for part in text.split(".") if part.isdigit()]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
