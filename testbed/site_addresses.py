"""Give the processes of each pool site their own source address, and block an address for some sites.

All sites are on one host. A site's processes are in a control group (see `site_cgroups`); the kernel rewrites the
source address of their connections to the given ports. Needs root and nf_tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

from testbed.site_cgroups import SiteCgroups, run_nft

_BASE_MARK = 0x70616300
_NFT_RULES = """\
table inet {name} {{
  chain leaving {{
    type filter hook output priority mangle; policy accept;
    tcp dport {{ {ports} }} meta mark set socket cgroupv2 level 1 map {{ {marks} }}
  }}
  chain closed {{
    type filter hook output priority filter; policy accept;
    meta mark {{ {blocked} }} ip daddr {outside} reject with icmp type net-unreachable
  }}
  chain named {{
    type nat hook postrouting priority srcnat; policy accept;
    meta mark {{ {all_marks} }} snat ip to meta mark map {{ {addresses} }}
  }}
}}
"""


def site_address(site_index: int) -> str:
    """Return the source address of a site."""
    return f"127.77.{site_index // 200}.{site_index % 200 + 1}"


@contextlib.contextmanager
def assign_site_addresses(
    site_cgroups: SiteCgroups, ports: Sequence[int], outside_address: str, blocked_sites: Collection[int]
) -> Iterator[None]:
    """In a `with` block, give each site its `site_address` at these ports, and block an address for some sites."""
    names = site_cgroups.cgroup_names()
    marks = [_BASE_MARK + number for number in range(len(names))]
    name = f"addresses_{names[0].rpartition('/')[2].replace('-', '_')}"
    rules = _NFT_RULES.format(
        name=name,
        ports=", ".join(map(str, ports)),
        marks=", ".join(f'"{group}" : {mark}' for group, mark in zip(names, marks, strict=True)),
        all_marks=", ".join(map(str, marks)),
        addresses=", ".join(f"{mark} : {site_address(number)}" for number, mark in enumerate(marks)),
        blocked=", ".join(str(marks[number]) for number in blocked_sites) or "0",
        outside=outside_address,
    )
    run_nft("-f", "-", rules=rules)
    try:
        yield
    finally:
        run_nft("delete", "table", "inet", name)
