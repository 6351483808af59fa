"""The configuration of a pool on one machine: an access point, and sites that differ in name, size and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import apptainer, condor, nvidia_smi, osdf_plugin


@dataclass(frozen=True)
class PoolSite:
    """What one execution point advertises. Its GPUs do not exist; a fake nvidia-smi reports them."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu_name: str
    gpu_memory_mb: int
    cuda_capability: float
    extra_settings: tuple[tuple[str, object], ...] = ()  # configuration of this site only


SITES = (
    PoolSite("CHTC-Spark-CE1", 16, 65536, 2, "NVIDIA A100-SXM4-40GB", 40536, 8.0),
    PoolSite("PDX-Coeus-CE1", 8, 32768, 1, "Tesla V100-PCIE-16GB", 16160, 7.0),
    PoolSite("GP-ARGO-ksu-backfill", 8, 32768, 1, "NVIDIA GeForce RTX 2080 Ti", 11019, 7.5),
)
SCHEDD_NAME = "ap@localhost"
_COMMON_CONFIG = Path(__file__).with_name("condor_pool.config")
_SITE_CONFIG = """\
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
_GPU_DISCOVERY_OUTPUT = """\
DetectedGPUs="{ids}"
Common=[ Capability={capability}; DriverVersion=12.4; MaxSupportedVersion=12040; \
DeviceName="{device}"; GlobalMemoryMb={memory_mb} ]
{each}
"""


def write_pool_config(pool_dir: Path, port: int, sites: Sequence[PoolSite], certificate_dir: Path) -> Path:
    """Create the folder of a pool and return its configuration file. Jobs trust the CAs in `certificate_dir`."""
    for name in ("run", "log", "lock", "spool", "etc", "passwords.d", "tokens.d"):
        (pool_dir / name).mkdir(parents=True, exist_ok=True)
    head = {
        "RELEASE_DIR": condor.install_dir() / "usr",
        "POOL": pool_dir,
        "PORT": port,
        "CERTIFICATES": certificate_dir,
    }
    nvidia_smi.write_fake_nvidia_smi(pool_dir)
    plugins = condor.program_path("curl_plugin"), osdf_plugin.write_plugin(pool_dir, certificate_dir / "bundle.pem")
    startds = [f"STARTD_{number}" for number in range(len(sites))]
    tail = {
        "FILETRANSFER_PLUGINS": ", ".join(map(str, plugins)),
        "SINGULARITY": apptainer.apptainer_path(),
        "DAEMON_LIST": ", ".join(["MASTER", "COLLECTOR", "NEGOTIATOR", "SCHEDD", *startds]),
        "DC_DAEMON_LIST": f"+ {' '.join(startds)}",
    }
    site_configs = [_site_config(pool_dir, number, site) for number, site in enumerate(sites)]
    body = (
        f"include : {_COMMON_CONFIG}\n",
        *site_configs,
        format_settings(tail),
        f"include ifexist : {dynamic_config_path(pool_dir)}\n",
    )
    config = pool_dir / "condor_config"
    config.write_text("\n".join([format_settings(head), *body]))
    return config


def dynamic_config_path(pool_dir: Path) -> Path:
    """Return the file of settings that change while the pool runs."""
    return pool_dir / "overrides.config"


def format_settings(settings: Mapping[str, object]) -> str:
    """Return the settings as lines of a configuration file."""
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def _site_config(pool_dir: Path, number: int, site: PoolSite) -> str:
    execute, gpus = pool_dir / "execute" / f"site{number}", pool_dir / "etc" / f"site{number}.gpus"
    execute.mkdir(parents=True, exist_ok=True)
    gpus.write_text(gpu_discovery_output(number, site))
    settings = format_settings({f"site{number}.{name}": value for name, value in site.extra_settings})
    return (
        _SITE_CONFIG.format(
            n=number, site=site, execute=execute, gpus=gpus, startd=_startd_script_path(pool_dir, number)
        )
        + settings
    )


def _startd_script_path(pool_dir: Path, number: int) -> Path:
    return pool_dir / "etc" / f"site{number}.startd"


def write_startd_script(pool_dir: Path, number: int, setup_line: str) -> None:
    """Write the script with which the master starts the startd of a site, after a line of shell."""
    script = _startd_script_path(pool_dir, number)
    script.write_text(f'#!/bin/sh\n{setup_line}\nexec {condor.program_path("condor_startd")} "$@"\n')
    script.chmod(0o755)


def gpu_discovery_output(number: int, site: PoolSite) -> str:
    """Return what condor_gpu_discovery would print at the site."""
    ids = [f"GPU-{number:04x}{card:04x}" for card in range(site.gpus)]
    each = "\n".join(f'{name.replace("-", "_")}=[ id="{name}" ]' for name in ids)
    return _GPU_DISCOVERY_OUTPUT.format(
        ids=", ".join(ids),
        capability=site.cuda_capability,
        device=site.gpu_name,
        memory_mb=site.gpu_memory_mb,
        each=each,
    )
