"""Train a DLA network on CIFAR-10, with the flags of DeepSquare's example. Plain PyTorch; read it from top to bottom.

    python3 train.py --dataset=FOLDER --checkpoint_out=ckpt.pth
    python3 train.py --dataset=FOLDER --checkpoint_in=old.pth --checkpoint_out=ckpt.pth     resume from another file
    torchrun --nproc-per-node=2 train.py …                                                  two processes
    python3 train.py --help                                                                 every setting

FOLDER holds `cifar-10-batches-py`, as in the published cifar-10-python.tar.gz. DeepSquare's program can also read and
write the checkpoint (`net`, `acc`, `epoch`). The checkpoint holds everything needed to resume exactly.
"""

import argparse
import json
import math
import os
import pickle
import sys
import time
from pathlib import Path

# Waiting threads release their core instead of spinning. torch reads this variable when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812 (the conventional name)

from packtrain.torch import Checkpoint, CheckpointError, ResumableBatchSampler, TrainingState, log_metrics

# -----------------------------------------------------------------------------
# settings


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


parser = argparse.ArgumentParser(description="Train a DLA network on CIFAR-10.")
parser.add_argument("--dataset", type=Path, required=True, help="folder with cifar-10-batches-py")
parser.add_argument(
    "--checkpoint_in", type=Path, help="resume from this file; if it does not exist, start from the beginning"
)
parser.add_argument("--checkpoint_out", type=Path, default="ckpt.pth", help="file to save to and to resume from")
parser.add_argument("--epochs", type=positive, default=200, help="in total, including resumed ones")
parser.add_argument("--lr", type=float, default=0.1, help="initial learning rate; decays to 0 as a cosine")
parser.add_argument("--batch-size", type=positive, default=128, help="of each process")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=5e-4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument(
    "--save-every", type=float, default=60, metavar="SECONDS", help="in addition to the end of each epoch"
)
parser.add_argument("--limit-train", type=positive, metavar="N", help="train with the first N images only")
parser.add_argument("--limit-test", type=positive, metavar="N", help="test with the first N images only")
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")

CLASSES = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the 50,000 training images
PAD = 4  # maximum shift of a random crop, in pixels
REPORT_EVERY_S = 1.0


# -----------------------------------------------------------------------------
# data: 32×32 images as one uint8 tensor (images, rows, columns, colours) of 150 MB; no data loader needed


class Inert:
    """Replaces every object of a pickle, and only stores its state."""

    def __init__(self, *args):
        self.state = None

    def __setstate__(self, state):
        self.state = state


ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # its name in newer versions of numpy
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class BatchUnpickler(pickle.Unpickler):
    """Reads a batch of CIFAR-10 without running code from it: a pickle is a program, and this one was downloaded.

    The names that a numpy array needs become Inert; all others are rejected.
    """

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 batch needs")
        return Inert


def read_batch(path):
    """Read the images (N, 32, 32, 3) and labels (N) of a pickle file."""
    try:
        with open(path, "rb") as file:
            batch = BatchUnpickler(file, encoding="bytes").load()
        pixels = batch[b"data"].state[-1]  # the state of a numpy array ends with its bytes
        planes = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 3, 32, 32)
        labels = torch.tensor(batch[b"labels"])
    except FileNotFoundError:
        sys.exit(f"train.py: {path} does not exist; --dataset must name the folder with cifar-10-batches-py")
    except Exception as error:  # a damaged pickle can raise anything
        sys.exit(f"train.py: {path} is not a batch of CIFAR-10: {error}")
    return planes.permute(0, 2, 3, 1), labels


def load(names, limit):
    """Return the first `limit` images and labels of the named batches."""
    parts = [read_batch(args.dataset / "cifar-10-batches-py" / name) for name in names]
    images = torch.cat([images for images, _ in parts])[:limit]
    labels = torch.cat([labels for _, labels in parts])[:limit]
    return images.contiguous().to(device), labels.to(device)


def augment(padded, indices, generator):
    """Return images, each shifted by up to PAD pixels and flipped at random, with one lookup for the whole batch."""
    n, line = len(indices), torch.arange(32)
    flipped = torch.randint(2, (n, 1), generator=generator).bool()
    rows = torch.randint(2 * PAD + 1, (n, 1), generator=generator) + line
    columns = torch.randint(2 * PAD + 1, (n, 1), generator=generator) + torch.where(flipped, line.flip(0), line)
    lookup = (indices[:, None, None], rows[:, :, None], columns[:, None, :])
    return padded[tuple(index.to(device) for index in lookup)]


def to_input(images):
    """Convert uint8 (N, 32, 32, 3) to normalised floats (N, 3, 32, 32) in the memory format channels_last."""
    mean, std = torch.tensor(MEAN, device=device), torch.tensor(STD, device=device)
    return ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)


# -----------------------------------------------------------------------------
# the model: Yu et al., "Deep Layer Aggregation" (arXiv 1707.06484), in the small form of DeepSquare's example:
# 15,142,970 parameters. The layers have the names that its checkpoints use.


def conv_bn_relu(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Root(nn.Module):
    """Joins two children by a 1×1 convolution over both."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(2 * width, width, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, left, right):
        return F.relu(self.bn(self.conv(torch.cat([left, right], 1))))


class Tree(nn.Module):
    """A tree of 2^level blocks. The right child takes the output of the left one; the root joins both outputs."""

    def __init__(self, inputs, outputs, level, stride):
        super().__init__()
        self.root = Root(outputs)
        if level == 1:
            self.left_tree, self.right_tree = Block(inputs, outputs, stride), Block(outputs, outputs, 1)
        else:
            self.left_tree = Tree(inputs, outputs, level - 1, stride)
            self.right_tree = Tree(outputs, outputs, level - 1, 1)

    def forward(self, x):
        left = self.left_tree(x)
        return self.root(left, self.right_tree(left))


class DLA(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = conv_bn_relu(3, 16)
        self.layer1 = conv_bn_relu(16, 16)
        self.layer2 = conv_bn_relu(16, 32)
        self.layer3 = Tree(32, 64, level=1, stride=1)
        self.layer4 = Tree(64, 128, level=2, stride=2)
        self.layer5 = Tree(128, 256, level=2, stride=2)
        self.layer6 = Tree(256, 512, level=1, stride=2)
        self.linear = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = self.layer2(self.layer1(self.base(x)))
        x = self.layer6(self.layer5(self.layer4(self.layer3(x))))
        return self.linear(F.avg_pool2d(x, 4).flatten(1))


# -----------------------------------------------------------------------------
# one epoch of training, one pass of testing


def learning_rate(epoch):
    """Return half a cosine: from --lr in the first epoch to almost 0 in the last."""
    return args.lr * (1 + math.cos(math.pi * epoch / args.epochs)) / 2


def train(epoch, start):
    """Train on one epoch from `start` on. Return the mean loss of this process."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(epoch)
    total_loss, started_at, last_report = start.extra.get("total_loss", 0.0), time.monotonic(), 0.0
    sampler.set_epoch(epoch)
    for batch, indices in enumerate(sampler, sampler.first_batch):
        indices, n_done = torch.tensor(indices), batch + 1
        x = to_input(augment(train_images, indices, sampler.generator(epoch, batch)))
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            loss = F.cross_entropy(model(x), train_labels[indices.to(device)])
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total_loss += loss.item()
        step = epoch * len(sampler) + n_done
        if rank == 0 and time.monotonic() - last_report >= REPORT_EVERY_S:
            last_report = time.monotonic()
            speed = round((n_done - start.batch) * args.batch_size * world / (last_report - started_at))
            progress = {"epoch": epoch, "epochs": args.epochs, "step": step, "total_steps": total_steps}
            log_metrics(**progress, loss=finite(loss.item()), images_per_second=speed)
        if n_done < len(sampler) and checkpoint.should_save(args.save_every):
            checkpoint.save(epoch=epoch, batch=n_done, step=step, total_loss=total_loss, history=history)
            if checkpoint.should_stop():
                checkpoint.exit_for_requeue()  # exit code 85: another attempt resumes from here
    return finite(total_loss / len(sampler))


@torch.no_grad()
def test():
    """Return the accuracy on the test images."""
    model.eval()
    n_correct = torch.zeros((), device=device)
    for indices in torch.arange(len(test_labels), device=device).split(500):
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            scores = dla(to_input(test_images[indices]))
        n_correct += (scores.argmax(1) == test_labels[indices]).sum()
    return n_correct.item() / len(test_labels)


class DeepSquareCheckpoint(Checkpoint):
    """A checkpoint in a file that DeepSquare's program can read, too, and that reads the files of that program.

    Its keys are `net`, `acc` in percent, and `epoch`, the last completed one, counted from 0.
    """

    def to_file(self, state):
        position = state["packtrain"]["training_state"]
        accuracy = position["metrics"].get("accuracy", position["best_value"] or 0.0)
        keys = {"net": state["model"], "acc": 100 * float(accuracy), "epoch": position["epoch"] - 1}
        return {**keys, "packtrain": state["packtrain"]}

    def from_file(self, content):
        if "net" not in content:
            return content
        position = {"epoch": content["epoch"] + 1, "best_value": content["acc"] / 100}
        return {"model": content["net"], "packtrain": content.get("packtrain", {"training_state": position})}


def finite(loss):
    """Return the loss, or exit if it is not finite."""
    if not math.isfinite(loss):
        sys.exit(f"train.py: the loss became {loss}; a lower --lr may help")
    return loss


def write_metrics():
    """Write a file atomically: to a temporary name, then a rename."""
    path = args.checkpoint_out.absolute().with_name("metrics.json")
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    temporary.write_text(json.dumps({**history[-1], "history": history}, indent=1) + "\n")
    temporary.replace(path)


# -----------------------------------------------------------------------------
# the run

args = parser.parse_args()
use_cuda = torch.cuda.is_available() and not args.no_cuda
# torch would start a thread per core of the machine, even if the job has only two of them.
torch.set_num_threads(min(len(os.sched_getaffinity(0)), int(os.environ.get("CPUS_PER_TASK", 1 << 16))))
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

train_images, train_labels = load([f"data_batch_{n}" for n in range(1, 6)], args.limit_train)
test_images, test_labels = load(["test_batch"], args.limit_test)
train_images = F.pad(train_images, (0, 0, PAD, PAD, PAD, PAD))  # with a border, a random crop is a plain lookup

model = dla = DLA().to(device, memory_format=torch.channels_last)
if world > 1:
    model = nn.parallel.DistributedDataParallel(dla, device_ids=[device] if use_cuda else None)
elif use_cuda and torch.cuda.device_count() > 1:
    model = nn.DataParallel(dla)  # one process with several GPUs, as in DeepSquare's workflow
optimizer = torch.optim.SGD(dla.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)
sampler = ResumableBatchSampler(len(train_labels), args.batch_size, seed=args.seed)
total_steps = args.epochs * len(sampler)

checkpoint = DeepSquareCheckpoint(
    args.checkpoint_out.absolute(), model=dla, optimizer=optimizer, scaler=scaler, sampler=sampler,
    monitor="accuracy", mode="max",
)  # fmt: skip
try:
    start = checkpoint.restore(fallback=args.checkpoint_in)
except CheckpointError as error:
    sys.exit(f"train.py: {error}")
history = list(start.extra.get("history", []))
if rank == 0:
    parameters = sum(p.numel() for p in dla.parameters())
    print(f"DLA: {parameters:,} parameters on {device}, {len(train_labels):,} training images", flush=True)
    if start.epoch >= args.epochs:
        print(f"the checkpoint has completed all {args.epochs} epochs: nothing to train", flush=True)
    elif start.epoch or start.batch:
        print(f"resuming in epoch {start.epoch} after {start.batch} of {len(sampler)} batches", flush=True)
    elif args.checkpoint_in:
        print(f"there is no checkpoint at {args.checkpoint_in} yet: starting from the beginning", flush=True)

for epoch in range(start.epoch, args.epochs):
    started_at, step = time.monotonic(), (epoch + 1) * len(sampler)
    loss = train(epoch, start if epoch == start.epoch else TrainingState(epoch))
    row = {"loss": loss, "accuracy": test()} if rank == 0 else {}
    if rank == 0:
        log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, **row)
        elapsed_s = time.monotonic() - started_at
        print(f"epoch {epoch}: loss {loss:.3f}, test accuracy {row['accuracy']:.1%}, {elapsed_s:.0f} s", flush=True)
    history.append({"epoch": epoch, **row})
    checkpoint.save(epoch=epoch + 1, step=step, metrics=row, history=history)
    if epoch + 1 < args.epochs and checkpoint.should_stop():
        checkpoint.exit_for_requeue()

if start.epoch >= args.epochs:
    history = history or [{"epoch": start.epoch - 1, "accuracy": test()}]  # a file of DeepSquare's program
    step = start.epoch * len(sampler)
    checkpoint.save(epoch=start.epoch, step=step, metrics=history[-1], history=history)
checkpoint.close()
if rank == 0:
    write_metrics()
if world > 1:
    dist.destroy_process_group()
