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
from packtrain.condor.classads import format_old_classad, get_attribute, parse_old_classad
from packtrain.errors import FailedError, FormatError
from packtrain.plugin import transfer_results
from packtrain.plugin.file_transfer import TransferResult, run_transfer
from packtrain.plugin.job_credentials import SCHEMES, JobCredentials
from packtrain.plugin.transfer_requests import TransferRequest, read_requests
from packtrain.transfer.http.connect import CA_BUNDLES

CAPABILITIES = {
    "MultipleFileSupport": True,
    "PluginVersion": __version__,
    "PluginType": "FileTransfer",
    "ProtocolVersion": 2,
    "SupportedMethods": ",".join(SCHEMES),
}
_USAGE = "use: packtrain-plugin.pyz -classad | -infile FILE -outfile FILE [-upload]"
_MAX_PARALLEL_FILES = 4  # files; each has connections of its own
_DEFAULT_RETRY_TIMEOUT_S = 300.0
_RETRY_TIMEOUT_ATTRIBUTE = "PacktrainRetryTimeout"  # an attribute of the job


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "-classad":
        sys.stdout.write(format_old_classad(CAPABILITIES))
        return transfer_results.EXIT_SUCCESS
    files = _parse_arguments(arguments)
    if files is None:
        sys.stderr.write(f"packtrain: {_USAGE}\n")
        return transfer_results.EXIT_FAILED
    return _transfer(*files, is_upload="-upload" in arguments)


def _parse_arguments(arguments: Sequence[str]) -> tuple[Path, Path] | None:
    given = dict(zip(arguments, arguments[1:]))
    if not given.get("-infile") or not given.get("-outfile"):
        return None
    return Path(given["-infile"]), Path(given["-outfile"])


def _transfer(infile: Path, outfile: Path, is_upload: bool) -> int:
    _trust_site_certificates()
    moved: list[TransferResult] = []
    try:
        moved = _run_transfers(read_requests(infile, is_upload), TerminationHandler().install())
    except (FormatError, OSError) as error:
        moved = [
            TransferResult(TransferRequest("", "", is_upload), error=FailedError("internal", f"{infile.name}: {error}"))
        ]
    for problem in {str(one.error) for one in moved if one.error is not None and one.was_started}:
        sys.stderr.write(f"packtrain: {problem}\n")
    try:
        transfer_results.write_ads(outfile, [transfer_results.make_result_ad(one) for one in moved])
    except OSError as error:
        sys.stderr.write(f"packtrain: the results cannot be written: {error}\n")
        return transfer_results.EXIT_NO_RESULTS
    return transfer_results.exit_code(moved)


class TerminationHandler:
    """HTCondor ends a plugin that takes too long by TERM: there is still a moment to say how far it came."""

    def __init__(self) -> None:
        self._error: FailedError | None = None

    def install(self) -> TerminationHandler:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._error = FailedError("terminated", f"the plugin received {signal.Signals(number).name}")

    def check_cancelled(self) -> None:
        if self._error is not None:
            raise self._error


def _run_transfers(requests: list[TransferRequest], termination: TerminationHandler) -> list[TransferResult]:
    """A few at once, in their order; behind an input that does not come no other is begun."""
    access, patience_s = JobCredentials(), _read_retry_timeout_s()
    failed: list[TransferResult] = []

    def run_one(request: TransferRequest) -> TransferResult:
        if failed and not request.is_upload:
            return transfer_results.make_skipped_result(request)
        moved = run_transfer(request, access, patience_s, termination.check_cancelled)
        if moved.error is not None:
            failed.append(moved)
        return moved

    with ThreadPoolExecutor(_MAX_PARALLEL_FILES) as threads:
        return list(threads.map(run_one, requests))


def _read_retry_timeout_s() -> float:
    """`+PacktrainRetryTimeout = 60` of the job, else minutes."""
    try:
        ad = parse_old_classad(
            Path(os.environ.get("_CONDOR_JOB_AD", ".job.ad")).read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return _DEFAULT_RETRY_TIMEOUT_S
    wanted = get_attribute(ad, _RETRY_TIMEOUT_ATTRIBUTE)
    return float(wanted) if type(wanted) in (int, float) and wanted >= 0 else _DEFAULT_RETRY_TIMEOUT_S


def _trust_site_certificates() -> None:
    """Those of X509_CERT_DIR, too, as HTCondor's own plugins do."""
    folder = os.environ.get("X509_CERT_DIR")
    if not folder:
        return
    os.environ["SSL_CERT_DIR"] = os.pathsep.join(filter(None, (os.environ.get("SSL_CERT_DIR"), folder)))
    bundle = next(filter(os.path.exists, CA_BUNDLES), None)
    if bundle and "SSL_CERT_FILE" not in os.environ:
        os.environ["SSL_CERT_FILE"] = bundle
