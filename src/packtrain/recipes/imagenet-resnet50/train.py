"""Trains a ResNet-50 on ImageNet, or on anything that lies in one folder per class. Read it from top to bottom.

    python3 train.py --data FOLDER --save-model                    5 epochs; one GPU if there is one
    python3 train.py --stream --save-model                         the same, straight from the archive, wherever it is
    torchrun --nproc-per-node=4 train.py --data FOLDER …           four GPUs
    python3 train.py --data FOLDER --weights resnet50.pth …        begin with published weights
    python3 train.py --help                                        every setting

FOLDER has a folder of images for each class; the class ids are their sorted names, the same everywhere. With --stream
nothing is unpacked: images are read out of the tar of class tars that the workflow names (`mode: stream`), or that an
index is of (--stream INDEX). Outputs go to $PACKTRAIN_OUTPUT, or to the current folder where packtrain is not around:
checkpoint.pt, metrics.json, and with --save-model the weights. Started again, it goes on exactly where its checkpoint
was saved. Needs torch and Pillow; with simplejpeg images are decoded faster.
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

# Threads that wait give their core away instead of spinning. torch reads it when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812 (the name that everyone knows)
from PIL import Image

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

from packtrain.errors import PacktrainError
from packtrain.stream.job_config import open_job_stream
from packtrain.torch import Checkpoint, CheckpointError, ResumableBatchSampler, TrainingState, log_metrics
from packtrain.torch.streaming import make_streaming_loader

# -----------------------------------------------------------------------------
# settings


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


parser = argparse.ArgumentParser(description="Train a ResNet-50 on a folder of class folders.")
source = parser.add_mutually_exclusive_group(required=True)
source.add_argument("--data", type=Path, help="the folder that has a folder of images for each class")
source.add_argument("--stream", nargs="?", const="", metavar="INDEX", help="read images where they are")
parser.add_argument("--epochs", type=positive, default=5)
parser.add_argument("--batch-size", type=positive, default=64, help="over all processes")
parser.add_argument("--lr", type=float, default=0.025, help="the highest learning rate, after the warm-up")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=1e-4)
parser.add_argument("--weights", type=Path, metavar="FILE", help="begin with these, in torchvision's names")
parser.add_argument("--save-model", nargs="?", const="imagenet_resnet50.pt", metavar="PATH", help="write the weights")
parser.add_argument("--save-every", type=float, default=300, metavar="SECONDS", help="beside the end of each epoch")
parser.add_argument("--test-every", type=positive, default=50, metavar="N", help="each N-th image is for testing only")
parser.add_argument("--image-size", type=positive, default=224, metavar="PIXELS", help="of the crop; less is faster")
parser.add_argument("--workers", type=positive, help="threads (or processes) for images; default: one for each CPU")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even where there is a GPU")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as the published weights expect them
WARM_UP = 0.05  # the share of all steps in which the learning rate grows
AHEAD = 4  # batches that are read while one is trained with
REPORT_EVERY_S = 1.0


# -----------------------------------------------------------------------------
# data: JPEGs, to squares of pixels


def square(data, across, down, mirrored):
    """--image-size pixels in each direction out of the image, as bytes: across and down say where, from 0 to 1."""
    side = args.image_size * 256 // 224
    image = decoded(data, side)
    scale = side / min(image.size)
    width, height = (max(side, round(scale * length)) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round(across * (width - args.image_size)), round(down * (height - args.image_size))
    image = image.crop((left, top, left + args.image_size, top + args.image_size))
    return (image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image).tobytes()


def decoded(data, side):
    """Not much larger than the side wanted: the decoder may skip details that the resize would."""
    if simplejpeg is not None:
        with contextlib.suppress(ValueError):  # a few files of ImageNet are CMYK or PNG, whatever their names say
            return Image.fromarray(simplejpeg.decode_jpeg(data, min_height=side, min_width=side))
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (side, side))
    return image.convert("RGB")


def normalised(pixels, labels):
    """uint8 (N, rows, columns, 3) → floats (N, 3, rows, columns) that lie in memory as `channels_last`."""
    images = pixels.to(device, non_blocking=True).float()
    mean, std = torch.tensor(MEAN, device=device), torch.tensor(STD, device=device)
    return ((images / 255 - mean) / std).permute(0, 3, 1, 2), labels.to(device)


def as_pixels(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, args.image_size, args.image_size, 3)


# -----------------------------------------------------------------------------
# images out of a folder, read by threads (Pillow lets other threads run while it decodes)


class Folder:
    """Each --test-every-th image is for testing. `state` goes into the checkpoint."""

    def __init__(self, folder):
        samples, self.classes = list_images(folder)
        self._train = [sample for number, sample in enumerate(samples, 1) if number % args.test_every]
        self._test = samples[args.test_every - 1 :: args.test_every]
        self.images, self.test_images = len(self._train), len(self._test)
        self.state = ResumableBatchSampler(len(self._train), args.batch_size, seed=args.seed)
        self.batches = len(self.state)

    def train(self, epoch, begin):
        """Batches of images and labels, from the batch `begin` on."""
        return in_batches(self._train, self._shuffled(epoch, begin))

    def is_within(self, epoch, done):
        """Whether more batches of this epoch are to come."""
        return done < self.batches

    def test(self):
        plans = torch.arange(len(self._test)).split(args.batch_size)
        return in_batches(self._test, ([(number, 0.5, 0.5, False) for number in plan.tolist()] for plan in plans))

    def _shuffled(self, epoch, begin):
        """Random crops, half of them mirrored, decided by the seed, the epoch and the batch alone."""
        for batch, chosen in enumerate(self.state.batches(epoch, begin), begin):
            dice = torch.rand(3, len(chosen), generator=self.state.generator(epoch, batch))
            across, down, mirrored = dice[0].tolist(), dice[1].tolist(), (dice[2] < 0.5).tolist()
            yield list(zip(chosen.tolist(), across, down, mirrored))  # noqa: B905 (Python 3.9 has no `strict`)


def list_images(folder):
    """(path, class id) of every image, in the same order everywhere."""
    if not folder.is_dir():
        sys.exit(f"train.py: {folder} is no folder; --data must name the one that has a folder for each class")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    images = [(path, number) for number, name in enumerate(names) for path in sorted((folder / name).iterdir())]
    if not images:
        sys.exit(f"train.py: {folder} has no folders with images in it")
    return images, names


def in_batches(samples, plans):
    """For each plan, a list of (number of the sample, across, down, mirrored), its images and labels."""
    ahead, pool = deque(), ThreadPoolExecutor(workers)
    try:
        for plan in plans:
            reading = [pool.submit(read, samples[number][0], *place) for number, *place in plan]
            ahead.append((reading, torch.tensor([samples[number][1] for number, *_ in plan])))
            if len(ahead) > AHEAD:
                yield arrived(*ahead.popleft())
        while ahead:
            yield arrived(*ahead.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def read(path, across, down, mirrored):
    try:
        return square(path.read_bytes(), across, down, mirrored)
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for files that are no images
        sys.exit(f"train.py: {path} cannot be read as an image: {error}")  # the main thread gets it as the result


def arrived(reading, labels):
    return normalised(as_pixels(b"".join(one.result() for one in reading)), labels)


# -----------------------------------------------------------------------------
# images out of an archive, wherever it is (--stream), read and decoded by processes


class Archive:
    """Like Folder. The position in the stream is part of the state: see docs/how-to/stream.md of packtrain."""

    def __init__(self, index):
        numbers = range(len(open_job_stream(index)[0]))
        tested = numbers[args.test_every - 1 :: args.test_every]
        trained = [number for number in numbers if (number + 1) % args.test_every]
        # Forked processes know what this one does.
        more = {"batch_size": max(1, args.batch_size // world), "workers": workers, "multiprocessing_context": "fork"}
        self._crops, alone = Crops(), {"rank_and_world": (0, 1), "shuffle": False, **more}
        self._test = make_streaming_loader(index, decode_fn=middle, indices=tested, **alone) if tested else ()
        self.state = make_streaming_loader(index, decode_fn=self._crops, indices=trained, seed=args.seed, **more)
        self.classes, self.images, self.test_images = self.state.classes, len(trained), len(tested)
        self.batches = -(-(len(trained) // world) // more["batch_size"])

    def train(self, epoch, begin):
        """Batches of images and labels, from where the state is: nothing, if that is behind this epoch."""
        self._crops.epoch = epoch
        images = self.state if self.is_within(epoch, begin) else ()
        return (normalised(pixels, labels) for pixels, labels in images)

    def is_within(self, epoch, done):
        """What is left of an epoch may be more or fewer batches for other processes than began it; or too few."""
        return self.state.epoch == epoch

    def test(self):
        return (normalised(pixels, labels) for pixels, labels in self._test)


class Crops:
    """Random crops, half of them mirrored, decided by the seed, the epoch and the image alone."""

    epoch = 1

    def __call__(self, data, label):
        dice = random.Random(f"{args.seed} {self.epoch} {zlib.crc32(data)}").random
        return as_pixels(square(data, dice(), dice(), dice() < 0.5))[0], label


def middle(data, label):
    return as_pixels(square(data, 0.5, 0.5, False))[0], label


# -----------------------------------------------------------------------------
# the model: He et al., "Deep Residual Learning" (arXiv 1512.03385), table 1, with the stride in the 3×3 convolutions.
# The names of the parts are torchvision's, so that its published weights fit: 25,557,032 parameters for 1000 classes.


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
                nn.init.zeros_(part.bn3.weight)  # each block begins as its shortcut: the first epochs go better

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def load_weights(path):
    """Published weights; the last layer stays new where they know another number of classes."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if weights["fc.weight"].shape != resnet.fc.weight.shape:
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith("fc.")}
        missing, unexpected = resnet.load_state_dict(weights, strict=False)
    except Exception as error:  # there is no end to what a file of another kind can raise
        sys.exit(f"train.py: {path} has no weights of a ResNet-50: {error}")
    wrong = [*unexpected, *(name for name in missing if not name.startswith("fc."))]
    if wrong:
        sys.exit(f"train.py: {path} has no weights of a ResNet-50 in torchvision's names: {wrong[0]} does not fit")


# -----------------------------------------------------------------------------
# one epoch of training, one pass of testing


def learning_rate(step):
    """A warm-up, then half a cosine down to nothing; steps count from 1."""
    warm_up = min(1, step / max(1, WARM_UP * total_steps))
    return args.lr * warm_up * (1 + math.cos(math.pi * (step - 1) / total_steps)) / 2


def train(epoch, position):
    """Every image once, in a new order, from the position on; the mean loss (of this process)."""
    model.train()
    total_loss, began, last_report = position.extra.get("total_loss", 0.0), time.monotonic(), 0.0
    for done, (x, y) in enumerate(data.train(epoch, position.batch), position.batch + 1):
        step = (epoch - 1) * data.batches + min(done, data.batches)
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
            speed = round((done - position.batch) * args.batch_size / (last_report - began), 1)
            where = {"epoch": epoch, "epochs": args.epochs, "step": step, "total_steps": total_steps}
            log_metrics(**where, loss=finite(loss.item()), images_per_second=speed)
        if data.is_within(epoch, done) and checkpoint.should_save(args.save_every):
            checkpoint.save(epoch=epoch, batch=done, step=step, total_loss=total_loss, history=history)
            if checkpoint.should_stop():
                checkpoint.exit_for_requeue()  # exit code 85: another attempt goes on from here
    loss = finite(total_loss / data.batches)
    # Now, since testing takes its time: another attempt would begin with that.
    checkpoint.save(epoch=epoch, batch=data.batches, step=epoch * data.batches, total_loss=total_loss, history=history)
    if checkpoint.should_stop():
        checkpoint.exit_for_requeue()
    return loss


@torch.no_grad()
def test():
    """The share of the test images that it knows; nothing where there are none."""
    model.eval()
    right = 0
    for x, y in data.test():
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            right += (resnet(x).argmax(1) == y).sum().item()
    return {"accuracy": right / data.test_images} if data.test_images else {}


def finite(loss):
    """The loss as it is, unless there is nothing left to train."""
    if not math.isfinite(loss):
        sys.exit(f"train.py: the loss became {loss}; a lower --lr may help")
    return loss


def write(name, save):
    """Whoever looks finds the complete file or none: a temporary name first, then a rename."""
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
# torch would start a thread for each core of the machine, also where the job was given only two of them.
cpus = min(len(os.sched_getaffinity(0)), int(os.environ.get("CPUS_PER_TASK", 1 << 16)))
workers = args.workers or cpus
torch.set_num_threads(cpus)
# torchrun sets these, and so does packtrain's agent for a step with several tasks.
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cpu")
if use_cuda:
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.cuda.device_count():
        sys.exit("train.py: more processes than GPUs, and NCCL wants one for each; take fewer tasks, or --no-cuda")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if use_cuda else "gloo")
# Half precision on GPUs; float16 needs its gradients scaled, the newer bfloat16 does not.
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
    parts = {"optimizer": optimizer, "scaler": scaler, "order": data.state}
    checkpoint = Checkpoint(output / "checkpoint.pt", model=resnet, **parts)
    position = checkpoint.restore()
except CheckpointError as error:
    sys.exit(f"train.py: {error}")
total_steps = args.epochs * data.batches
history = list(position.extra.get("history", []))
if rank == 0:
    parameters = sum(p.numel() for p in resnet.parameters())
    print(f"ResNet-50: {parameters:,} parameters on {device}", flush=True)
    print(f"{len(data.classes)} classes, {data.images:,} images to learn from", flush=True)
    if position.step:
        print(f"going on in epoch {position.epoch} after {position.batch} of {data.batches} batches", flush=True)

for epoch in range(position.epoch, args.epochs + 1):
    began, step = time.monotonic(), epoch * data.batches
    loss = train(epoch, position if epoch == position.epoch else TrainingState(epoch))
    row = {"loss": loss, **test()} if rank == 0 else {}
    if rank == 0:
        log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, **row)
        known = f", test accuracy {row['accuracy']:.1%}" if "accuracy" in row else ""
        print(f"epoch {epoch}: loss {loss:.3f}{known}, {time.monotonic() - began:.0f} s", flush=True)
    history.append({"epoch": epoch, **row})
    checkpoint.save(epoch=epoch + 1, step=step, metrics=row, history=history)
    if epoch < args.epochs and checkpoint.should_stop():
        checkpoint.exit_for_requeue()

checkpoint.close()
if rank == 0:
    result = {**history[-1], "classes": len(data.classes), "images": data.images, "history": history}
    write("metrics.json", lambda path: path.write_text(json.dumps(result, indent=1) + "\n"))
    if args.save_model:
        write(args.save_model, lambda path: torch.save(resnet.state_dict(), path))
if world > 1:
    dist.destroy_process_group()
