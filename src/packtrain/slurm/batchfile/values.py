"""Parses the values of sbatch's options. All functions raise ValueError with a message for the user."""

from __future__ import annotations

import contextlib
import math
import re
import signal
from dataclasses import dataclass

_MAX_ARRAY_TASKS = 100_000
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_UNLIMITED = ("infinite", "unlimited", "-1", "0")
_MEMORY = re.compile(r"(\d{1,15})([kmgt]?)b?", re.IGNORECASE)
_MB_PER_UNIT = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}
_COUNT = re.compile(r"(\d{1,9})([km]?)", re.IGNORECASE)
_ARRAY_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_SIGNAL = re.compile(r"(?:R?(B)?:)?(?:SIG)?([A-Z0-9]+)(?:@(\d{1,5}))?", re.IGNORECASE)
_DEFAULT_SIGNAL_S = 60
_SIGNAL_NAMES = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "CONT", "ALRM")
_GRES = re.compile(r"(?:gres[:/])?gpu(?=[:=,(]|$)(?:[:=]([^,()]*))?(?:\([^)]*\))?", re.IGNORECASE)


def parse_time_limit(text: str) -> float | None:
    """Return a duration in seconds; None for no limit. Forms: M, M:S, H:M:S, D-H, D-H:M and D-H:M:S."""
    if text.lower() in _UNLIMITED:
        return None
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"should be a time such as 30, 2:00:00 or 1-12, but is {text[:40]!r}")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return float(int(days) * 86400 + hours * 3600 + minutes * 60 + seconds)
    if len(numbers) == 3:
        return float(numbers[0] * 3600 + numbers[1] * 60 + numbers[2])
    minutes, seconds = (*numbers, 0)[:2]
    return float(minutes * 60 + seconds)


def parse_memory_mb(text: str) -> int:
    """Return a size in MiB, rounded up. A plain number is in MiB; 0 means all memory of a node."""
    match = _MEMORY.fullmatch(text)
    if not match:
        raise ValueError(f"should be a size such as 8G, but is {text[:40]!r}")
    return math.ceil(int(match[1]) * _MB_PER_UNIT[match[2].lower()])


def parse_count(text: str) -> int:
    """Return a positive number of tasks, CPUs or GPUs."""
    match = _COUNT.fullmatch(text)
    count = int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()] if match else 0
    if not count:
        raise ValueError(f"should be a number from 1, but is {text[:40]!r}")
    return count


def parse_node_count(text: str) -> int:
    """Return the smallest number of nodes of `2`, `2-4`, `2,4` or `2-8:2`."""
    return parse_count(re.split(r"[-,:]", text)[0])


def parse_gpu_count(text: str) -> int:
    """Return the number of GPUs of `2`, `a100:2` or `a100:1,v100:2`; a type alone is one GPU."""
    return sum(_gpus_of_type(part) for part in text.split(","))


def _gpus_of_type(text: str) -> int:
    number = text.rpartition(":")[2]
    return int(number) if re.fullmatch(r"\d{1,9}", number) else 1


def parse_gres_gpus(text: str) -> int:
    """Return the number of GPUs in a list of generic resources, such as `gpu:a100:2,nvme:1`."""
    return sum(_gpus_of_type(match[1] or "1") for match in map(_GRES.fullmatch, _split_gres(text)) if match)


def _split_gres(text: str) -> list[str]:
    """Split a list at the commas outside of parentheses, as in `gpu:2(S:0,1),nvme`."""
    return re.findall(r"(?:[^,(]|\([^)]*\)?)+", text)


@dataclass(frozen=True)
class ArrayIndexes:
    """A parsed `--array`.

    Attributes:
        indexes: The array indexes, sorted; empty for no array.
        limit: How many tasks may run at once; 0 for any number.
        step: What Slurm calls the step: the first number after a colon, or 1.
    """

    indexes: tuple[int, ...] = ()
    limit: int = 0
    step: int = 1


def parse_array(text: str) -> ArrayIndexes:
    """Return the indexes of `1-10:2%4`."""
    ranges, percent, limit = text.partition("%")
    if percent and not re.fullmatch(r"\d{1,9}", limit):
        raise ValueError(f"should end with a number after %, but is {text[:40]!r}")
    indexes: set[int] = set()
    for part in ranges.strip("[]").removesuffix(",").split(","):
        match = _ARRAY_PART.fullmatch(part.lstrip())
        if not match or (match[3] and not int(match[3])):
            raise ValueError(f"should be indexes such as 0-9 or 1,3,5-7:2%4, but is {text[:40]!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or (last - first) // step >= _MAX_ARRAY_TASKS:
            raise ValueError(f"{part} should be an increasing range of at most {_MAX_ARRAY_TASKS} indexes")
        indexes.update(range(first, last + 1, step))
    if len(indexes) > _MAX_ARRAY_TASKS:
        raise ValueError(f"should have at most {_MAX_ARRAY_TASKS} indexes, but has {len(indexes)}")
    first_step = re.search(r":(\d+)", ranges)
    return ArrayIndexes(tuple(sorted(indexes)), int(limit or 0), int(first_step[1]) if first_step else 1)


@dataclass(frozen=True)
class EndSignal:
    """A parsed `--signal`.

    Attributes:
        name: As `stopSignal` of a step has it, e.g. B:USR1.
        seconds: How long before the time limit it is sent.
    """

    name: str
    seconds: int


def parse_signal(text: str) -> EndSignal:
    """Return the signal of `[R][B:]USR1@120`; names and numbers are allowed."""
    match = _SIGNAL.fullmatch(text)
    name = _signal_name(match[2].upper()) if match else ""
    if match is None or name not in _SIGNAL_NAMES:
        raise ValueError(f"should be {', '.join(_SIGNAL_NAMES)} and seconds, such as B:USR1@120, but is {text[:40]!r}")
    prefix = "B:" if match[1] else ""
    return EndSignal(prefix + name, int(match[3] or 0) or _DEFAULT_SIGNAL_S)


def _signal_name(text: str) -> str:
    if not text.isdecimal():
        return text
    with contextlib.suppress(ValueError):
        return signal.Signals(int(text)).name.removeprefix("SIG")
    return ""
