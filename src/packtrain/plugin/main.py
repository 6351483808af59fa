"""The command line that HTCondor calls.

packtrain-plugin.pyz -classad                                   print the capabilities
packtrain-plugin.pyz -infile FILE -outfile FILE [-upload]       carry out the requests in FILE
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
from packtrain.transfer.http.tls import CA_BUNDLES

CAPABILITIES = {
    "MultipleFileSupport": True,
    "PluginVersion": __version__,
    "PluginType": "FileTransfer",
    "ProtocolVersion": 2,
    "SupportedMethods": ",".join(SCHEMES),
}
_USAGE = "use: packtrain-plugin.pyz -classad | -infile FILE -outfile FILE [-upload]"
_MAX_PARALLEL_FILES = 4  # each has its own connections
_DEFAULT_RETRY_TIMEOUT_S = 300.0
_RETRY_TIMEOUT_ATTRIBUTE = "PacktrainRetryTimeout"  # of the job ad, in seconds


def main(arguments: Sequence[str]) -> int:
    """Run the plugin and return its exit code."""
    if arguments and arguments[0] == "-classad":
        sys.stdout.write(format_old_classad(CAPABILITIES))
        return transfer_results.EXIT_SUCCESS
    files = _parse_arguments(arguments)
    if files is None:
        sys.stderr.write(f"packtrain: {_USAGE}\n")
        return transfer_results.EXIT_FAILED
    return _transfer(*files, is_upload="-upload" in arguments)


def _parse_arguments(arguments: Sequence[str]) -> tuple[Path, Path] | None:
    options = dict(zip(arguments, arguments[1:]))
    if not options.get("-infile") or not options.get("-outfile"):
        return None
    return Path(options["-infile"]), Path(options["-outfile"])


def _transfer(infile: Path, outfile: Path, is_upload: bool) -> int:
    _trust_site_certificates()
    results: list[TransferResult] = []
    try:
        results = _run_transfers(read_requests(infile, is_upload), TerminationHandler().install())
    except (FormatError, OSError) as error:
        results = [
            TransferResult(TransferRequest("", "", is_upload), error=FailedError("internal", f"{infile.name}: {error}"))
        ]
    for message in {str(result.error) for result in results if result.error is not None and result.was_started}:
        sys.stderr.write(f"packtrain: {message}\n")
    try:
        transfer_results.write_ads(outfile, [transfer_results.make_result_ad(result) for result in results])
    except OSError as error:
        sys.stderr.write(f"packtrain: the results cannot be written: {error}\n")
        return transfer_results.EXIT_NO_RESULTS
    return transfer_results.exit_code(results)


class TerminationHandler:
    """Turns SIGTERM, with which HTCondor ends a slow plugin, into an error, so that results are still written."""

    def __init__(self) -> None:
        self._error: FailedError | None = None

    def install(self) -> TerminationHandler:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._error = FailedError("terminated", f"the plugin received {signal.Signals(number).name}")

    def check_cancelled(self) -> None:
        """Raise the error once a signal was received."""
        if self._error is not None:
            raise self._error


def _run_transfers(requests: list[TransferRequest], termination: TerminationHandler) -> list[TransferResult]:
    """Carry out the requests, a few in parallel; after a failed download no other download is started."""
    credentials, retry_timeout_s = JobCredentials(), _read_retry_timeout_s()
    failed: list[TransferResult] = []

    def run_one(request: TransferRequest) -> TransferResult:
        if failed and not request.is_upload:
            return transfer_results.make_skipped_result(request)
        result = run_transfer(request, credentials, retry_timeout_s, termination.check_cancelled)
        if result.error is not None:
            failed.append(result)
        return result

    with ThreadPoolExecutor(_MAX_PARALLEL_FILES) as threads:
        return list(threads.map(run_one, requests))


def _read_retry_timeout_s() -> float:
    """Return the job's `+PacktrainRetryTimeout`, or the default."""
    try:
        ad = parse_old_classad(
            Path(os.environ.get("_CONDOR_JOB_AD", ".job.ad")).read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return _DEFAULT_RETRY_TIMEOUT_S
    value = get_attribute(ad, _RETRY_TIMEOUT_ATTRIBUTE)
    return float(value) if type(value) in (int, float) and value >= 0 else _DEFAULT_RETRY_TIMEOUT_S


def _trust_site_certificates() -> None:
    """Those of X509_CERT_DIR, too, as HTCondor's own plugins do."""
    folder = os.environ.get("X509_CERT_DIR")
    if not folder:
        return
    os.environ["SSL_CERT_DIR"] = os.pathsep.join(filter(None, (os.environ.get("SSL_CERT_DIR"), folder)))
    bundle = next(filter(os.path.exists, CA_BUNDLES), None)
    if bundle and "SSL_CERT_FILE" not in os.environ:
        os.environ["SSL_CERT_FILE"] = bundle
