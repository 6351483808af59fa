"""What packages need of a machine: their virtual packages (`__glibc >=2.28`) and the tags of wheels."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packtrain.plan import MachineRequirements

_LOWER_BOUND = re.compile(r"\s*(>=|>|==|=|~=)?\s*v?(\d[\w.]*?)(\.\*|\*)?\s*$")
_DEPENDENCY = re.compile(r"\s*(__\w+)\s*(.*)$")
_MANYLINUX_TAG = re.compile(r"manylinux(?:_(\d+)_(\d+)|(1|2010|2014))_")
_MANYLINUX_ALIASES = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}  # PEP 600
_MICROARCHITECTURE = re.compile(r"x86_64_v[1-4]$")
_LEVEL_PACKAGE = "_x86_64-microarch-level"


def collect_requirements(dependencies: Iterable[str], wheel_names: Iterable[str], min_cuda: str) -> MachineRequirements:
    """Return the minimum versions that satisfy all packages.

    Args:
        dependencies: Dependencies and constraints of conda packages, of which those on virtual packages count.
        wheel_names: File names of wheels.
        min_cuda: What the platform needs.
    """
    minimums = {"__cuda": min_cuda, "__glibc": "", "__linux": ""}
    archspec = ""
    for text in dict.fromkeys(dependencies):
        name, spec = _split_dependency(text)
        if name in minimums:
            minimums[name] = max(minimums[name], minimum_version(spec), key=parse_version)
        elif name == "__archspec":
            archspec = max(archspec, _microarchitecture(spec))
        elif name == _LEVEL_PACKAGE and (level := minimum_version(spec)):
            archspec = max(archspec, f"x86_64_v{level}")
    for wheel in wheel_names:
        minimums["__glibc"] = max(minimums["__glibc"], wheel_glibc(wheel), key=parse_version)
    return MachineRequirements(
        min_glibc=minimums["__glibc"],
        min_linux=minimums["__linux"],
        min_cuda=minimums["__cuda"],
        archspec=archspec,
    )


def _split_dependency(text: str) -> tuple[str, str]:
    """Return the name of a virtual package and its spec; ("", "") for other packages."""
    if text.startswith(_LEVEL_PACKAGE):
        return _LEVEL_PACKAGE, text[len(_LEVEL_PACKAGE) :].strip()
    match = _DEPENDENCY.match(text)
    return (match.group(1), match.group(2).strip()) if match else ("", "")


def _microarchitecture(spec: str) -> str:
    """Return the level in `1 x86_64_v3`, or "": other builds name one processor, and their level is not known."""
    build = spec.rpartition(" ")[2].rpartition("=")[2]
    return build if _MICROARCHITECTURE.match(build) else ""


def minimum_version(spec: str) -> str:
    """Return the lowest version that a spec such as `>=2.17,<3.0.a0|>=4` may accept; "" if it has no lower bound."""
    version_part = spec.strip().split(" ")[0]
    alternatives = [
        max((_lower_bound(part) for part in alternative.split(",")), key=parse_version)
        for alternative in version_part.split("|")
    ]
    return min(alternatives, key=parse_version)


def _lower_bound(part: str) -> str:
    match = _LOWER_BOUND.match(part)
    return match.group(2).rstrip(".") if match else ""


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without zeros at the end: 12.0 and 12 are equal."""
    numbers: list[int] = []
    for part in text.split("."):
        match = re.match(r"\d+", part)
        if not match:
            break
        numbers.append(int(match.group()))
        if match.end() != len(part):
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def wheel_glibc(file_name: str) -> str:
    """Return the glibc that a wheel needs: the lowest of its manylinux tags; "" if it has none."""
    tags = [
        _MANYLINUX_ALIASES[alias] if alias else (int(major), int(minor))
        for major, minor, alias in _MANYLINUX_TAG.findall(file_name)
    ]
    return ".".join(map(str, min(tags))) if tags else ""
