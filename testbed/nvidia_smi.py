"""A fake nvidia-smi for the GPUs of the pool's sites, which do not exist. It prints what the slot's ad contains.

It is a shell script, so that it also runs in images, where real sites mount theirs.
"""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """\
#!/bin/sh
ad=${_CONDOR_MACHINE_AD:-.machine.ad}
fields=
for option in "$@"; do
    case $option in --query-gpu=*) fields=$(echo "${option#*=}" | tr , ' ') ;; esac
done
if [ -z "$fields" ]; then
    echo "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14    CUDA Version: 12.4 |"
    exit 0
fi
index=0
grep '^GPUs_GPU_' "$ad" | while read -r line; do
    attribute() { echo "$line" | sed -n "s/.*[[ ]$1 = \\"\\{0,1\\}\\([^;\\"]*[^;\\" ]\\)[\\"; ].*/\\1/p"; }
    row=
    for field in $fields; do
        case $field in
            index) value=$index ;;
            uuid) value=$(attribute Id) ;;
            name) value=$(attribute DeviceName) ;;
            memory.total) value=$(attribute GlobalMemoryMb) ;;
            compute_cap) value=$(attribute Capability) ;;
            driver_version) value=550.54.14 ;;
            *) echo "Field \\"$field\\" is not a valid field to query."; exit 2 ;;
        esac
        row="${row:+$row, }$value"
    done
    echo "$row"
    index=$((index + 1))
done
"""
_WRAPPER = """\
#!/bin/sh
export PATH="{tools}:${{PATH:-/usr/local/bin:/usr/bin:/bin}}"
exec "$@"
"""


def write_fake_nvidia_smi(pool_dir: Path) -> None:
    """Write the script to `etc/tools`, and `etc/with_tools`, a wrapper that puts it on the PATH of a job."""
    tools = pool_dir / "etc/tools"
    tools.mkdir(parents=True, exist_ok=True)
    for path, text in ((tools / "nvidia-smi", _SCRIPT), (pool_dir / "etc/with_tools", _WRAPPER.format(tools=tools))):
        path.write_text(text)
        path.chmod(0o755)
