"""Train a ResNet-50 on ImageNet, or on any images in one folder per class. Read it from top to bottom.

    python3 train.py --data FOLDER --save-model                    5 epochs; on a GPU if there is one
    python3 train.py --stream --save-model                         the same, read from the remote archive
    torchrun --nproc-per-node=4 train.py --data FOLDER …           four GPUs
    python3 train.py --data FOLDER --weights resnet50.pth …        start from published weights
    python3 train.py --help                                        every setting

FOLDER has a folder of images for each class; labels are the positions of the sorted folder names. With --stream nothing
is unpacked: images are read from the tar of class tars that the workflow names (`mode: stream`), or that an index
lists (--stream INDEX). Outputs are written to $PACKTRAIN_OUTPUT, or without packtrain to the current folder:
checkpoint.pt, metrics.json, and with --save-model the weights. Started again, the program resumes exactly from its
checkpoint. It needs torch and Pillow; simplejpeg makes decoding faster.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import sys
import time
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Waiting threads release their core instead of spinning. torch reads this variable when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812 (the conventional name)
from PIL import Image

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

from packtrain.errors import PacktrainError
from packtrain.torch import (
    Checkpoint,
    CheckpointError,
    ResumableBatchSampler,
    StreamingLoader,
    TrainingState,
    log_metrics,
)

# -----------------------------------------------------------------------------
# settings


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


parser = argparse.ArgumentParser(description="Train a ResNet-50 on a folder of class folders.")
source = parser.add_mutually_exclusive_group(required=True)
source.add_argument("--data", type=Path, help="folder with a folder of images for each class")
source.add_argument("--stream", nargs="?", const="", metavar="INDEX", help="read images from the remote archive")
parser.add_argument("--epochs", type=positive, default=5)
parser.add_argument("--batch-size", type=positive, default=64, help="of each process")
parser.add_argument("--lr", type=float, default=0.025, help="maximum learning rate, after the warm-up")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=1e-4)
parser.add_argument("--weights", type=Path, metavar="FILE", help="initial weights, with torchvision's names")
parser.add_argument("--save-model", nargs="?", const="imagenet_resnet50.pt", metavar="PATH", help="write the weights")
parser.add_argument(
    "--save-every", type=float, default=300, metavar="SECONDS", help="in addition to the end of each epoch"
)
parser.add_argument(
    "--test-every", type=positive, default=50, metavar="N", help="use every N-th image for testing only"
)
parser.add_argument("--image-size", type=positive, default=224, metavar="PIXELS", help="side of the crop")
parser.add_argument("--workers", type=positive, help="threads (or processes) that decode images; default: one per CPU")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as the published weights expect
WARM_UP = 0.05  # share of the steps in which the learning rate grows
PREFETCH_BATCHES = 4  # batches to read during a training step
REPORT_EVERY_S = 1.0


# -----------------------------------------------------------------------------
# data: from JPEG files to square crops


def crop_square(data, across, down, flipped):
    """Return a crop of --image-size pixels on each side, as bytes. `across` and `down`, from 0 to 1, say where."""
    side = args.image_size * 256 // 224
    image = decode_image(data, side)
    scale = side / min(image.size)
    width, height = (max(side, round(scale * length)) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round(across * (width - args.image_size)), round(down * (height - args.image_size))
    image = image.crop((left, top, left + args.image_size, top + args.image_size))
    return (image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else image).tobytes()


def decode_image(data, side):
    """Decode an image with at least `side` pixels on each side; the decoder skips details that a resize would drop."""
    if simplejpeg is not None:
        with contextlib.suppress(ValueError):  # a few files of ImageNet are CMYK or PNG, despite their names
            return Image.fromarray(simplejpeg.decode_jpeg(data, min_height=side, min_width=side))
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (side, side))
    return image.convert("RGB")


def normalise(pixels, labels):
    """Convert uint8 (N, rows, columns, 3) to floats (N, 3, rows, columns) in the memory format channels_last."""
    images = pixels.to(device, non_blocking=True).float()
    mean, std = torch.tensor(MEAN, device=device), torch.tensor(STD, device=device)
    return ((images / 255 - mean) / std).permute(0, 3, 1, 2), labels.to(device)


def to_pixels(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, args.image_size, args.image_size, 3)


# -----------------------------------------------------------------------------
# images from a folder, read by threads (Pillow releases the interpreter lock while it decodes)


class Folder:
    """Training and test images of a folder. `state` is saved in the checkpoint."""

    def __init__(self, folder):
        samples, self.classes = list_images(folder)
        self._train = [sample for number, sample in enumerate(samples, 1) if number % args.test_every]
        self._test = samples[args.test_every - 1 :: args.test_every]
        self.n_images, self.n_test_images = len(self._train), len(self._test)
        self.state = ResumableBatchSampler(len(self._train), args.batch_size, seed=args.seed)
        self.n_batches = len(self.state)

    def train(self, epoch):
        """Return the batches of images and labels that are left in this epoch."""
        self.state.set_epoch(epoch)
        return read_batches(self._train, self._shuffled_crops(epoch))

    def has_more(self, epoch, n_done):
        """Return whether batches of this epoch are left."""
        return n_done < self.n_batches

    def test(self):
        batches = torch.arange(len(self._test)).split(args.batch_size)
        return read_batches(self._test, ([(number, 0.5, 0.5, False) for number in batch.tolist()] for batch in batches))

    def _shuffled_crops(self, epoch):
        """Yield random crops and flips that depend only on the seed, the epoch and the batch."""
        for batch, indices in enumerate(self.state, self.state.first_batch):
            random_values = torch.rand(3, len(indices), generator=self.state.generator(epoch, batch))
            across, down, flipped = (
                random_values[0].tolist(),
                random_values[1].tolist(),
                (random_values[2] < 0.5).tolist(),
            )
            yield list(zip(indices, across, down, flipped))  # noqa: B905 (Python 3.9 has no `strict`)


def list_images(folder):
    """Return (path, label) of every image, always in the same order, and the class names."""
    if not folder.is_dir():
        sys.exit(f"train.py: {folder} is not a folder; --data must name the folder with a folder for each class")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    images = [(path, number) for number, name in enumerate(names) for path in sorted((folder / name).iterdir())]
    if not images:
        sys.exit(f"train.py: {folder} has no folders with images in it")
    return images, names


def read_batches(samples, crop_lists):
    """Yield images and labels for each list of (sample number, across, down, flipped)."""
    pending, pool = deque(), ThreadPoolExecutor(workers)
    try:
        for crops in crop_lists:
            futures = [pool.submit(read_crop, samples[number][0], *crop) for number, *crop in crops]
            pending.append((futures, torch.tensor([samples[number][1] for number, *_ in crops])))
            if len(pending) > PREFETCH_BATCHES:
                yield collect_batch(*pending.popleft())
        while pending:
            yield collect_batch(*pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def read_crop(path, across, down, flipped):
    try:
        return crop_square(path.read_bytes(), across, down, flipped)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises these for a file that is not an image
        sys.exit(f"train.py: {path} cannot be read as an image: {error}")  # the future raises it in the main thread


def collect_batch(futures, labels):
    return normalise(to_pixels(b"".join(future.result() for future in futures)), labels)


# -----------------------------------------------------------------------------
# images from a remote archive (--stream), read and decoded by processes


class Archive:
    """Like Folder, for an archive. `state` includes the position in the epoch (packtrain's docs/how-to/stream.md)."""

    def __init__(self, index):
        numbers = range(len(StreamingLoader(index).samples))
        test = numbers[args.test_every - 1 :: args.test_every]
        train = [number for number in numbers if (number + 1) % args.test_every]
        # Forked workers share the arguments and functions of this process.
        options = {"batch_size": args.batch_size, "num_workers": workers, "multiprocessing_context": "fork"}
        self._random_crop, self._test = RandomCrop(), ()
        if test:
            test_options = {"decode_fn": center_crop, "shuffle": False, "rank": 0, "world_size": 1, **options}
            self._test = StreamingLoader(index, indices=test, **test_options)
        self.state = StreamingLoader(index, decode_fn=self._random_crop, indices=train, seed=args.seed, **options)
        self.classes, self.n_images, self.n_test_images = self.state.classes, len(train), len(test)
        self.n_batches = len(self.state)

    def train(self, epoch):
        """Return the batches that are left in this epoch; none if the state is past it."""
        self._random_crop.epoch = epoch
        batches = self.state if self.state.epoch == epoch else ()
        return (normalise(pixels, labels) for pixels, labels in batches)

    def has_more(self, epoch, n_done):
        """Return whether batches of this epoch are left. Their number changes with the number of processes."""
        return self.state.epoch == epoch

    def test(self):
        return (normalise(pixels, labels) for pixels, labels in self._test)


class RandomCrop:
    """A random crop and flip that depends only on the seed, the epoch and the image."""

    epoch = 0

    def __call__(self, data, label):
        next_random = random.Random(f"{args.seed} {self.epoch} {zlib.crc32(data)}").random
        return to_pixels(crop_square(data, next_random(), next_random(), next_random() < 0.5))[0], label


def center_crop(data, label):
    return to_pixels(crop_square(data, 0.5, 0.5, False))[0], label


# -----------------------------------------------------------------------------
# the model: He et al., "Deep Residual Learning" (arXiv 1512.03385), table 1, with the stride in the 3×3 convolutions.
# The layers have torchvision's names, so that its published weights load: 25,557,032 parameters for 1000 classes.


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, and a shortcut around them."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x))


def stage(inputs, width, blocks, stride):
    first_block = Bottleneck(inputs, width, stride)
    return nn.Sequential(first_block, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))


class ResNet50(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(64, 64, blocks=3, stride=1)
        self.layer2 = stage(256, 128, blocks=4, stride=2)
        self.layer3 = stage(512, 256, blocks=6, stride=2)
        self.layer4 = stage(1024, 512, blocks=3, stride=2)
        self.fc = nn.Linear(2048, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(part, Bottleneck):
                nn.init.zeros_(part.bn3.weight)  # each block starts as the identity, which helps the first epochs

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def load_weights(path):
    """Load published weights. The last layer keeps its initial weights if the number of classes differs."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if weights["fc.weight"].shape != resnet.fc.weight.shape:
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith("fc.")}
        missing, unexpected = resnet.load_state_dict(weights, strict=False)
    except Exception as error:  # a file of another kind can raise anything
        sys.exit(f"train.py: {path} has no weights of a ResNet-50: {error}")
    mismatches = [*unexpected, *(name for name in missing if not name.startswith("fc."))]
    if mismatches:
        sys.exit(
            f"train.py: {path} has no weights of a ResNet-50 with torchvision's names: {mismatches[0]} does not fit"
        )


# -----------------------------------------------------------------------------
# one epoch of training, one pass of testing


def learning_rate(step):
    """Return the learning rate: a warm-up, then half a cosine down to 0. Steps count from 1."""
    warm_up = min(1, step / max(1, WARM_UP * total_steps))
    return args.lr * warm_up * (1 + math.cos(math.pi * (step - 1) / total_steps)) / 2


def train(epoch, start):
    """Train on one epoch from `start` on. Return the mean loss of this process."""
    model.train()
    total_loss, started_at, last_report = start.extra.get("total_loss", 0.0), time.monotonic(), 0.0
    for n_done, (x, y) in enumerate(data.train(epoch), start.batch + 1):
        step = epoch * data.n_batches + min(n_done, data.n_batches)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total_loss += loss.item()
        if rank == 0 and time.monotonic() - last_report >= REPORT_EVERY_S:
            last_report = time.monotonic()
            speed = round((n_done - start.batch) * args.batch_size * world / (last_report - started_at), 1)
            progress = {"epoch": epoch, "epochs": args.epochs, "step": step, "total_steps": total_steps}
            log_metrics(**progress, loss=finite(loss.item()), images_per_second=speed)
        if data.has_more(epoch, n_done) and checkpoint.should_save(args.save_every):
            checkpoint.save(epoch=epoch, batch=n_done, step=step, total_loss=total_loss, history=history)
            if checkpoint.should_stop():
                checkpoint.exit_for_requeue()  # exit code 85: another attempt resumes from here
    loss = finite(total_loss / data.n_batches)
    # Save before testing, which takes long: another attempt resumes with the test.
    step = (epoch + 1) * data.n_batches
    checkpoint.save(epoch=epoch, batch=data.n_batches, step=step, total_loss=total_loss, history=history)
    if checkpoint.should_stop():
        checkpoint.exit_for_requeue()
    return loss


@torch.no_grad()
def test():
    """Return the accuracy on the test images; an empty dict if there are none."""
    model.eval()
    n_correct = 0
    for x, y in data.test():
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            n_correct += (resnet(x).argmax(1) == y).sum().item()
    return {"accuracy": n_correct / data.n_test_images} if data.n_test_images else {}


def finite(loss):
    """Return the loss, or exit if it is not finite."""
    if not math.isfinite(loss):
        sys.exit(f"train.py: the loss became {loss}; a lower --lr may help")
    return loss


def write(name, save):
    """Write a file atomically: to a temporary name, then a rename."""
    path = output / name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    save(temporary)
    temporary.replace(path)


# -----------------------------------------------------------------------------
# the run

args = parser.parse_args()
output = Path(os.environ.get("PACKTRAIN_OUTPUT", "."))
use_cuda = torch.cuda.is_available() and not args.no_cuda
# torch would start a thread per core of the machine, even if the job has only two of them.
cpus = min(len(os.sched_getaffinity(0)), int(os.environ.get("CPUS_PER_TASK", 1 << 16)))
workers = args.workers or cpus
torch.set_num_threads(cpus)
# torchrun sets these variables, and packtrain's agent does for a step with several tasks.
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cpu")
if use_cuda:
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.cuda.device_count():
        sys.exit("train.py: more processes than GPUs, but NCCL needs one GPU per process; use fewer tasks or --no-cuda")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if use_cuda else "gloo")
# Half precision on GPUs: float16 needs gradient scaling, the newer bfloat16 does not.
half = torch.bfloat16 if use_cuda and torch.cuda.get_device_capability() >= (8, 0) else torch.float16
scaler = torch.amp.GradScaler(device.type, enabled=use_cuda and half is torch.float16)
torch.manual_seed(args.seed)

try:
    data = Folder(args.data) if args.data else Archive(args.stream or None)
except (PacktrainError, OSError) as error:
    sys.exit(f"train.py: {error}")

model = resnet = ResNet50(len(data.classes)).to(device, memory_format=torch.channels_last)
if args.weights:
    load_weights(args.weights)
if world > 1:
    model = nn.parallel.DistributedDataParallel(resnet, device_ids=[device] if use_cuda else None)
optimizer = torch.optim.SGD(resnet.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)

try:
    checkpoint = Checkpoint(
        output / "checkpoint.pt", model=resnet, optimizer=optimizer, scaler=scaler, sampler=data.state
    )
    start = checkpoint.restore()
except CheckpointError as error:
    sys.exit(f"train.py: {error}")
total_steps = args.epochs * data.n_batches
history = list(start.extra.get("history", []))
if rank == 0:
    parameters = sum(p.numel() for p in resnet.parameters())
    print(f"ResNet-50: {parameters:,} parameters on {device}", flush=True)
    print(f"{len(data.classes)} classes, {data.n_images:,} training images", flush=True)
    if start.step:
        print(f"resuming in epoch {start.epoch} after {start.batch} of {data.n_batches} batches", flush=True)

for epoch in range(start.epoch, args.epochs):
    started_at, step = time.monotonic(), (epoch + 1) * data.n_batches
    loss = train(epoch, start if epoch == start.epoch else TrainingState(epoch))
    row = {"loss": loss, **test()} if rank == 0 else {}
    if rank == 0:
        log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, **row)
        accuracy = f", test accuracy {row['accuracy']:.1%}" if "accuracy" in row else ""
        print(f"epoch {epoch}: loss {loss:.3f}{accuracy}, {time.monotonic() - started_at:.0f} s", flush=True)
    history.append({"epoch": epoch, **row})
    checkpoint.save(epoch=epoch + 1, step=step, metrics=row, history=history)
    if epoch + 1 < args.epochs and checkpoint.should_stop():
        checkpoint.exit_for_requeue()

checkpoint.close()
if rank == 0:
    result = {**history[-1], "classes": len(data.classes), "images": data.n_images, "history": history}
    write("metrics.json", lambda path: path.write_text(json.dumps(result, indent=1) + "\n"))
    if args.save_model:
        write(args.save_model, lambda path: torch.save(resnet.state_dict(), path))
if world > 1:
    dist.destroy_process_group()
