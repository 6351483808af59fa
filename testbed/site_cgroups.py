"""Disconnect the processes of one pool site from the rest of the machine. Needs root and nf_tables.

All sites are on one host and use the loopback interface. Each site's processes are in their own control group. While a
site is disconnected, packets between sockets of its group and others are dropped: open connections stall, and new ones
get no response. Connections within the site (a job and its starter) still work.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testbed import debian

PACKAGE_SPEC = debian.PackageSpec("bookworm", ("nftables",))
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CGROUP_PREFIX = "packtrain-pool-"
_PACKET_MARK = 0x7061636B
_TCP_RETRIES_PATH, _FEW_TCP_RETRIES, _DEFAULT_TCP_RETRIES = Path("/proc/sys/net/ipv4/tcp_retries2"), 6, 15
# During a handshake, the remote end has no full socket yet, so its group is unknown (every full socket is in the root
# group) and packets pass. Connections across the boundary never get that far, because their first packet arrives at a
# listening socket and is dropped.
_NFT_RULES = """\
table inet {name} {{
  chain leaving {{
    type filter hook output priority mangle; policy accept;
    socket cgroupv2 level 1 "{group}" meta mark set {mark}
  }}
  chain arriving {{
    type filter hook input priority filter; policy accept;
    meta mark {mark} jump from_the_site
    meta mark != {mark} jump from_elsewhere
  }}
  chain from_the_site {{
    socket cgroupv2 level 1 "{group}" accept
    socket cgroupv2 level 0 "{root}" drop
  }}
  chain from_elsewhere {{
    tcp flags & (syn|ack) == (syn|ack) accept
    socket cgroupv2 level 1 "{group}" drop
  }}
}}
"""


def nft_path() -> Path:
    """Return the path of `nft`, installed if needed."""
    return debian.install(debian.cache_dir() / "nftables", PACKAGE_SPEC) / "usr/sbin/nft"


class SiteCgroups:
    """The control groups of the sites of one pool. They do not exist if this process may not create them."""

    def __init__(self, n_sites: int) -> None:
        self._paths = [
            _cgroup2_mount() / f"{_CGROUP_PREFIX}{os.getpid()}-{id(self):x}-{number}" for number in range(n_sites)
        ]

    def create(self) -> None:
        _remove_stale_cgroups()
        with contextlib.suppress(PermissionError):
            for path in self._paths:
                path.mkdir()

    def join_command(self, site_index: int) -> str:
        """Return a line of shell that moves the shell to the site's group."""
        return f"echo $$ > {self._paths[site_index]}/cgroup.procs" if self._paths[site_index].exists() else ":"

    def remove(self) -> None:
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.rmdir()

    def cgroup_names(self) -> list[str]:
        """Return the names of the groups in nft rules. Raises RuntimeError if they do not exist."""
        if not all(path.exists() for path in self._paths):
            raise RuntimeError("distinguishing sites needs root and control groups v2")
        return [str(path.relative_to(_CGROUP_ROOT)) for path in self._paths]

    @contextlib.contextmanager
    def disconnect(self, site_index: int) -> Iterator[None]:
        """Drop all packets between the site and other processes, in a `with` block."""
        group = self._paths[site_index]
        if not group.exists():
            raise RuntimeError("disconnecting a site needs root and control groups v2")
        name = _table_name(group)
        rules = _NFT_RULES.format(
            name=name,
            group=group.relative_to(_CGROUP_ROOT),
            root=_cgroup2_mount().relative_to(_CGROUP_ROOT),
            mark=_PACKET_MARK,
        )
        run_nft("-f", "-", rules=rules)
        _set_tcp_retries(_FEW_TCP_RETRIES)
        try:
            yield
        finally:
            run_nft("delete", "table", "inet", name)
            _set_tcp_retries(_DEFAULT_TCP_RETRIES)


def _set_tcp_retries(number: int) -> None:
    """Set after how many retransmissions a connection breaks.

    With the default, a process that was sending when the site was disconnected would notice it after 15 minutes.
    """
    with contextlib.suppress(OSError):
        _TCP_RETRIES_PATH.write_text(str(number))


def run_nft(*arguments: str, rules: str | None = None) -> None:
    """Run nft; `rules` is its standard input."""
    subprocess.run([nft_path(), *arguments], input=rules, text=True, check=True)


def _cgroup2_mount() -> Path:
    """Return where control groups v2 are mounted: at the root, or in `unified` next to v1."""
    return next(
        (path for path in (_CGROUP_ROOT / "unified", _CGROUP_ROOT) if (path / "cgroup.procs").exists()), _CGROUP_ROOT
    )


def _remove_stale_cgroups() -> None:
    """Remove the groups and nft tables of pools whose process was killed."""
    for path in _cgroup2_mount().glob(f"{_CGROUP_PREFIX}*"):
        if not Path(f"/proc/{path.name.removeprefix(_CGROUP_PREFIX).partition('-')[0]}").exists():
            subprocess.run([nft_path(), "delete", "table", "inet", _table_name(path)], capture_output=True)
            with contextlib.suppress(OSError):
                path.rmdir()


def _table_name(group: Path) -> str:
    return group.name.replace("-", "_")
