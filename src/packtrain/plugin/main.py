"""The plugin's command line, as HTCondor calls it:

packtrain-plugin.pyz -classad                                   say what it can do
packtrain-plugin.pyz -infile FILE -outfile FILE [-upload]       transfer what FILE asks for
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from packtrain import __version__
from packtrain.condor.classads import find, old_form, read_old
from packtrain.errors import FailedError, FormatError
from packtrain.plugin import transfer_results
from packtrain.plugin.file_transfer import Moved, move
from packtrain.plugin.job_credentials import SCHEMES, Access
from packtrain.plugin.transfer_requests import Asked, read
from packtrain.transfer.http.connect import BUNDLES

CAPABILITIES = {
    "MultipleFileSupport": True,
    "PluginVersion": __version__,
    "PluginType": "FileTransfer",
    "ProtocolVersion": 2,
    "SupportedMethods": ",".join(SCHEMES),
}
_USAGE = "use: packtrain-plugin.pyz -classad | -infile FILE -outfile FILE [-upload]"
_AT_ONCE = 4  # files; each has connections of its own
_PATIENCE_S = 300.0
_PATIENCE = "PacktrainPatience"  # an attribute of the job


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "-classad":
        sys.stdout.write(old_form(CAPABILITIES))
        return transfer_results.EXIT_DONE
    files = _parse(arguments)
    if files is None:
        sys.stderr.write(f"packtrain: {_USAGE}\n")
        return transfer_results.EXIT_FAILED
    return _transfer(*files, upload="-upload" in arguments)


def _parse(arguments: Sequence[str]) -> tuple[Path, Path] | None:
    given = dict(zip(arguments, arguments[1:]))
    if not given.get("-infile") or not given.get("-outfile"):
        return None
    return Path(given["-infile"]), Path(given["-outfile"])


def _transfer(infile: Path, outfile: Path, upload: bool) -> int:
    _trust_the_sites_authorities()
    moved: list[Moved] = []
    try:
        moved = _move_all(read(infile, upload), Stopping().listen())
    except (FormatError, OSError) as error:
        moved = [Moved(Asked("", "", upload), error=FailedError("internal", f"{infile.name}: {error}"))]
    for problem in {str(one.error) for one in moved if one.error is not None and one.tried}:
        sys.stderr.write(f"packtrain: {problem}\n")
    try:
        transfer_results.write(outfile, [transfer_results.answer(one) for one in moved])
    except OSError as error:
        sys.stderr.write(f"packtrain: the results cannot be written: {error}\n")
        return transfer_results.EXIT_NO_ANSWER
    return transfer_results.exit_code(moved)


class Stopping:
    """HTCondor ends a plugin that takes too long by TERM: there is still a moment to say how far it came."""

    def __init__(self) -> None:
        self._error: FailedError | None = None

    def listen(self) -> Stopping:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._error = FailedError("terminated", f"the plugin received {signal.Signals(number).name}")

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _move_all(wanted: list[Asked], stopping: Stopping) -> list[Moved]:
    """A few at once, in their order; behind an input that does not come no other is begun."""
    access, patience_s = Access(), _patience_s()
    failed: list[Moved] = []

    def one(asked: Asked) -> Moved:
        if failed and not asked.upload:
            return transfer_results.not_tried(asked)
        moved = move(asked, access, patience_s, stopping.check)
        if moved.error is not None:
            failed.append(moved)
        return moved

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(one, wanted))


def _patience_s() -> float:
    """`+PacktrainPatience = 60` of the job, else minutes."""
    try:
        ad = read_old(Path(os.environ.get("_CONDOR_JOB_AD", ".job.ad")).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return _PATIENCE_S
    wanted = find(ad, _PATIENCE)
    return float(wanted) if type(wanted) in (int, float) and wanted >= 0 else _PATIENCE_S


def _trust_the_sites_authorities() -> None:
    """Those of X509_CERT_DIR, too, as HTCondor's own plugins do."""
    folder = os.environ.get("X509_CERT_DIR")
    if not folder:
        return
    os.environ["SSL_CERT_DIR"] = os.pathsep.join(filter(None, (os.environ.get("SSL_CERT_DIR"), folder)))
    bundle = next(filter(os.path.exists, BUNDLES), None)
    if bundle and "SSL_CERT_FILE" not in os.environ:
        os.environ["SSL_CERT_FILE"] = bundle
