"""Renders what the packages of a Pixi environment need of a machine as terms of `requirements`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packtrain.plan import MachineRequirements

# HTCondor has no attribute for the version of glibc, but `OpSysAndVer` names the distribution.
_GLIBC_BY_SYSTEM = {
    **dict.fromkeys(("CentOS7", "RedHat7", "SL7"), (2, 17)),
    **dict.fromkeys(("AlmaLinux8", "CentOS8", "RedHat8", "Rocky8"), (2, 28)),
    **dict.fromkeys(("AlmaLinux9", "CentOS9", "RedHat9", "Rocky9"), (2, 34)),
    **dict.fromkeys(("AlmaLinux10", "CentOS10", "RedHat10", "Rocky10"), (2, 39)),
    "Debian10": (2, 28),
    "Debian11": (2, 31),
    "Debian12": (2, 36),
    "Debian13": (2, 41),
    "Ubuntu18": (2, 27),
    "Ubuntu20": (2, 31),
    "Ubuntu22": (2, 35),
    "Ubuntu24": (2, 39),
}
_MICROARCHITECTURE = re.compile(r"x86_64_v([1-4])$")


def machine_terms(requires: MachineRequirements) -> Iterator[str]:
    """Yield conditions that exclude machines on which the packages cannot run.

    A machine that runs another system, or does not advertise the attribute, is left to the agent's probe.
    """
    if requires.min_glibc:
        needed = tuple(int(part) for part in requires.min_glibc.split(".")[:2])
        too_old = sorted(name for name, glibc in _GLIBC_BY_SYSTEM.items() if glibc < needed)
        if too_old:
            yield _not_one_of("OpSysAndVer", too_old)
    if match := _MICROARCHITECTURE.match(requires.archspec):
        level = int(match.group(1))
        older = [f"x86_64-v{number}" for number in range(1, level)]
        if older:
            yield _not_one_of("Microarch", older)


def _not_one_of(attribute: str, values: Sequence[str]) -> str:
    """Return a condition that is also true for machines without the attribute."""
    listed = ", ".join(f'"{value}"' for value in values)
    return f"member(TARGET.{attribute}, {{{listed}}}) =!= true"
