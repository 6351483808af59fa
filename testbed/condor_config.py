"""The configuration of a pool on one machine: an access point and sites that differ in name, size and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import apptainer, condor, nvidia_smi, osdf_plugin


@dataclass(frozen=True)
class Site:
    """What one execution point says of itself; the GPUs are said, not there, and an nvidia-smi answers for them."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu: str
    gpu_mb: int
    capability: float
    more: tuple[tuple[str, object], ...] = ()  # settings of its own


SITES = (
    Site("CHTC-Spark-CE1", 16, 65536, 2, "NVIDIA A100-SXM4-40GB", 40536, 8.0),
    Site("PDX-Coeus-CE1", 8, 32768, 1, "Tesla V100-PCIE-16GB", 16160, 7.0),
    Site("GP-ARGO-ksu-backfill", 8, 32768, 1, "NVIDIA GeForce RTX 2080 Ti", 11019, 7.5),
)
SCHEDD = "ap@localhost"
_COMMON = Path(__file__).with_name("condor_pool.config")
_SITE = """\
STARTD_{n} = {startd}
STARTD_{n}_ARGS = -f -local-name site{n}
site{n}.STARTD_NAME = site{n}
site{n}.STARTD_LOG = $(LOG)/StartLog.site{n}
site{n}.STARTD_ADDRESS_FILE = $(LOG)/.site{n}_address
site{n}.EXECUTE = {execute}
site{n}.SITE_NAME = {site.name}
site{n}.NUM_CPUS = {site.cpus}
site{n}.MEMORY = {site.memory_mb}
site{n}.SITE_GPUS = {gpus}
"""
_GPU = """\
DetectedGPUs="{ids}"
Common=[ Capability={site.capability}; DriverVersion=12.4; DeviceName="{site.gpu}"; GlobalMemoryMb={site.gpu_mb} ]
{each}
"""


def write(pool: Path, port: int, sites: Sequence[Site], certificates: Path) -> Path:
    """Make the pool's folder; its configuration file. `certificates` is the folder of those that its jobs trust."""
    for name in ("run", "log", "lock", "spool", "etc", "passwords.d", "tokens.d"):
        (pool / name).mkdir(parents=True, exist_ok=True)
    head = {"RELEASE_DIR": condor.folder() / "usr", "POOL": pool, "PORT": port, "CERTIFICATES": certificates}
    nvidia_smi.write(pool)
    plugins = condor.program("curl_plugin"), osdf_plugin.write(pool, certificates / "bundle.pem")
    startds = [f"STARTD_{number}" for number in range(len(sites))]
    tail = {
        "FILETRANSFER_PLUGINS": ", ".join(map(str, plugins)),
        "SINGULARITY": apptainer.program(),
        "DAEMON_LIST": ", ".join(["MASTER", "COLLECTOR", "NEGOTIATOR", "SCHEDD", *startds]),
        "DC_DAEMON_LIST": f"+ {' '.join(startds)}",
    }
    each = [_site(pool, number, site) for number, site in enumerate(sites)]
    included = f"include : {_COMMON}\n", *each, lines(tail), f"include ifexist : {knobs(pool)}\n"
    config = pool / "condor_config"
    config.write_text("\n".join([lines(head), *included]))
    return config


def knobs(pool: Path) -> Path:
    """The file of settings that change while the pool runs."""
    return pool / "knobs"


def lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def _site(pool: Path, number: int, site: Site) -> str:
    execute, gpus = pool / "execute" / f"site{number}", pool / "etc" / f"site{number}.gpus"
    execute.mkdir(parents=True, exist_ok=True)
    gpus.write_text(inventory(number, site))
    settings = lines({f"site{number}.{name}": value for name, value in site.more})
    return _SITE.format(n=number, site=site, execute=execute, gpus=gpus, startd=_startd(pool, number)) + settings


def _startd(pool: Path, number: int) -> Path:
    return pool / "etc" / f"site{number}.startd"


def write_startd(pool: Path, number: int, first: str) -> None:
    """How the master starts the site's daemon: after a line of shell."""
    script = _startd(pool, number)
    script.write_text(f'#!/bin/sh\n{first}\nexec {condor.program("condor_startd")} "$@"\n')
    script.chmod(0o755)


def inventory(number: int, site: Site) -> str:
    """What condor_gpu_discovery would print there."""
    ids = [f"GPU-{number:04x}{card:04x}" for card in range(site.gpus)]
    each = "\n".join(f'{name.replace("-", "_")}=[ id="{name}" ]' for name in ids)
    return _GPU.format(ids=", ".join(ids), site=site, each=each)
