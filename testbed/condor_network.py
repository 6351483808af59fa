"""Cuts what runs at one site off from the rest of this machine. Needs root and the kernel's nf_tables.

All is on one host and speaks over the loopback interface. So each site's processes are in a control group of their
own, and during a cut packets between sockets of that group and others are dropped: open connections fall silent, new
ones are never answered. What speaks within the site (a job with its starter) goes on.
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
# A connection that is being made has no full socket yet at its far end: then no group is known (every full socket is
# in the root group), and packets pass. To and from elsewhere it comes to no such connection, since the first packet
# meets a listening socket.
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
    return debian.install(debian.cache_dir() / "nftables", PACKAGE_SPEC) / "usr/sbin/nft"


class SiteCgroups:
    """A control group for each site of one pool; none where this process may not make them."""

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
        """A line of shell that puts the shell into the site's group."""
        return f"echo $$ > {self._paths[site_index]}/cgroup.procs" if self._paths[site_index].exists() else ":"

    def remove(self) -> None:
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.rmdir()

    def cgroup_names(self) -> list[str]:
        """As rules of the kernel's name them."""
        if not all(path.exists() for path in self._paths):
            raise RuntimeError("sites can only be told apart by root, on a machine with control groups (v2)")
        return [str(path.relative_to(_CGROUP_ROOT)) for path in self._paths]

    @contextlib.contextmanager
    def disconnect(self, site_index: int) -> Iterator[None]:
        group = self._paths[site_index]
        if not group.exists():
            raise RuntimeError("a site's network can only be cut off by root, on a machine with control groups (v2)")
        name = _table_name(group)
        rules = _NFT_RULES.format(
            name=name,
            group=group.relative_to(_CGROUP_ROOT),
            root=_cgroup2_mount().relative_to(_CGROUP_ROOT),
            mark=0x7061636B,
        )
        run_nft("-f", "-", rules=rules)
        _set_tcp_retries(_FEW_TCP_RETRIES)
        try:
            yield
        finally:
            run_nft("delete", "table", "inet", name)
            _set_tcp_retries(_DEFAULT_TCP_RETRIES)


def _set_tcp_retries(number: int) -> None:
    """After how many unanswered ones a connection breaks. Who is sending at the moment of the cut would else notice it
    after a quarter of an hour; who is silent asks by keepalives."""
    with contextlib.suppress(OSError):
        _TCP_RETRIES_PATH.write_text(str(number))


def run_nft(*arguments: str, rules: str | None = None) -> None:
    subprocess.run([nft_path(), *arguments], input=rules, text=True, check=True)


def _cgroup2_mount() -> Path:
    """Version 2 is the whole tree, or a part of it beside version 1."""
    return next(
        (path for path in (_CGROUP_ROOT / "unified", _CGROUP_ROOT) if (path / "cgroup.procs").exists()), _CGROUP_ROOT
    )


def _remove_stale_cgroups() -> None:
    """What pools left whose process was killed."""
    for path in _cgroup2_mount().glob(f"{_CGROUP_PREFIX}*"):
        if not Path(f"/proc/{path.name.removeprefix(_CGROUP_PREFIX).partition('-')[0]}").exists():
            subprocess.run([nft_path(), "delete", "table", "inet", _table_name(path)], capture_output=True)
            with contextlib.suppress(OSError):
                path.rmdir()


def _table_name(group: Path) -> str:
    return group.name.replace("-", "_")
