"""A HTCondor transfer plugin for osdf:/// and pelican:// URLs, like those on the OSPool: one GET through the director.

The pool's folder has a script `osdf_plugin` that calls this program with the file that names the federation.
"""

from __future__ import annotations

import shutil
import ssl
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import classad2  # type: ignore[import-untyped]

DIRECTOR_API = "/api/v1.0/director/object"
_WRAPPER_SCRIPT = """\
#!/bin/sh
if [ "$1" = -classad ]; then
    printf '%s\\n' 'MultipleFileSupport = true' 'PluginType = "FileTransfer"' 'PluginVersion = "1"' \\
        'SupportedMethods = "osdf, pelican"' 'ProtocolVersion = 4'
    exit 0
fi
exec {python} {program} {federation} {certificates} "$@"
"""


def write_plugin(pool_dir: Path, ca_file: Path) -> Path:
    """Write the script of a pool. It handles -classad itself, because every starter calls that."""
    script = pool_dir / "etc/osdf_plugin"
    script.write_text(
        _WRAPPER_SCRIPT.format(
            python=sys.executable,
            program=Path(__file__).resolve(),
            federation=pool_dir / "etc/federation",
            certificates=ca_file,
        )
    )
    script.chmod(0o755)
    return script


def main(argv: Sequence[str]) -> int:
    federation, certificates, *options = argv
    arguments = dict(zip(options[::2], options[1::2], strict=False))
    context = ssl.create_default_context(cafile=certificates)
    requests = classad2.parseAds(Path(arguments["-infile"]).read_text())
    results = [_download(str(ad["Url"]), str(ad["LocalFileName"]), federation, context) for ad in requests]
    Path(arguments["-outfile"]).write_text("".join(f"{result}\n" for result in results))
    return 0 if all(result["TransferSuccess"] for result in results) else 1


def _download(url: str, local_path: str, federation: str, context: ssl.SSLContext) -> classad2.ClassAd:
    started_at, error = time.time(), ""
    try:
        host = urlsplit(url).netloc if url.startswith("pelican:") else Path(federation).read_text()
        with (
            urllib.request.urlopen(f"https://{host}{DIRECTOR_API}{urlsplit(url).path}", context=context) as response,
            open(local_path, "wb") as file,
        ):
            shutil.copyfileobj(response, file)
    except OSError as exception:
        error = str(exception)
    return classad2.ClassAd(_result_ad(url, local_path, started_at, error))


def _result_ad(url: str, local_path: str, started_at: float, error: str) -> dict[str, object]:
    size = Path(local_path).stat().st_size if not error else 0
    result: dict[str, object] = {
        "TransferUrl": url,
        "TransferFileName": Path(local_path).name,
        "TransferType": "download",
        "TransferProtocol": "osdf",
        "TransferStartTime": int(started_at),
        "TransferEndTime": int(time.time()),
        "TransferTotalBytes": size,
        "TransferFileBytes": size,
        "TransferSuccess": not error,
    }
    return result | ({"TransferError": error} if error else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
