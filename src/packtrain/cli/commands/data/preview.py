"""packtrain preview"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.credentials import credential_options
from packtrain.cli.ui.index_progress import RESUME_HINT, get_or_build_index
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import json_option, print_result
from packtrain.cli.ui.transfer_progress import cancel_on_signal
from packtrain.data.contact_sheet import Thumbnail
from packtrain.data.credentials import CredentialOptions
from packtrain.data.index_options import IndexOptions
from packtrain.data.preview import choose_samples, save_preview
from packtrain.formatting import pluralize


@click.command(name="preview")
@click.argument("url", metavar="URL")
@click.option("-n", "n_samples", type=click.IntRange(1, 400), default=16, show_default=True, help="Number of samples.")
@click.option(
    "-o",
    "--output",
    metavar="FILE.png",
    type=click.Path(path_type=Path),
    help="File to write (default: NAME-preview.png).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random choice of samples.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another URL of the same archive.")
@retry_timeout_option("How long to retry when all sources fail.")
@credential_options
@json_option
def command(
    url: str,
    n_samples: int,
    output: Path | None,
    seed: int,
    mirrors: tuple[str, ...],
    retry_timeout_s: float,
    credentials: CredentialOptions,
    as_json: bool,
) -> None:
    """Save some samples of a dataset as one image, with their names and classes.

    URL is a URL that `packtrain index` accepts, or an index file. If there is no index yet, it is built first.
    """
    options = IndexOptions((url,), mirrors, credentials, retry_timeout_s)
    target = output or Path(f"{options.name.partition('.')[0] or 'data'}-preview.png")
    with cancel_on_signal(RESUME_HINT) as cancel_token:
        index = options.open_named_index()
        if index is None:
            index = get_or_build_index(options, None, cancel_token, rebuild=False, quiet=as_json).index
        numbers = choose_samples(index, n_samples, seed)
        thumbnails = save_preview(index, numbers, options, target, cancel_token.check_cancelled)
    failed = [thumbnail for thumbnail in thumbnails if thumbnail.image is None]
    n_decoded = len(thumbnails) - len(failed)
    samples = [{"name": sample.title, "class": sample.label, "error": sample.reason} for sample in thumbnails]
    text = f"{target}: {pluralize(n_decoded, 'sample')} of {len(index):,}{_format_failures(failed)}"
    print_result(as_json, {"path": str(target), "samples": samples}, lambda out: out.print(text))


def _format_failures(failed: list[Thumbnail]) -> str:
    if not failed:
        return ""
    return f"; {pluralize(len(failed), 'other')} could not be decoded ({failed[0].title} {failed[0].reason})"
