"""Train a ResNet on CIFAR-10. Plain PyTorch in one file; read it from top to bottom.

    python3 train.py --data FOLDER                       ResNet-20, 30 epochs
    python3 train.py --data FOLDER --model resnet18      the wide network; needs a GPU
    torchrun --nproc-per-node 2 train.py --data FOLDER   two processes, with one GPU each if there are GPUs
    python3 train.py --help                              every setting

FOLDER holds `cifar-10-batches-py`, as in the published cifar-10-python.tar.gz. Outputs are written to
$PACKTRAIN_OUTPUT, or without packtrain to the current folder: checkpoint.pt during training, metrics.json, and with
--save-model the weights. Killed and started again with the same settings, the program resumes from its checkpoint, and
the result is the same to the last bit.
"""

import argparse
import json
import math
import os
import pickle
import sys
import time
from pathlib import Path

# Waiting threads release their core instead of spinning. On a busy machine (two cores, load 6) training was 2 to 13
# times as fast. torch reads this variable when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812 (the conventional name)

from packtrain.torch import Checkpoint, CheckpointError, ResumableBatchSampler, log_metrics

# -----------------------------------------------------------------------------
# settings


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


parser = argparse.ArgumentParser(description="Train a ResNet on CIFAR-10.")
parser.add_argument("--data", type=Path, required=True, help="folder with cifar-10-batches-py")
parser.add_argument("--model", choices=["resnet20", "resnet18"], default="resnet20")
parser.add_argument("--epochs", type=positive, default=30)
parser.add_argument("--lr", type=float, default=0.1, help="maximum learning rate, after the warm-up")
parser.add_argument("--batch-size", type=positive, default=128, help="of each process")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=5e-4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--limit-train", type=positive, metavar="N", help="train with the first N images only")
parser.add_argument("--limit-test", type=positive, metavar="N", help="test with the first N images only")
parser.add_argument("--save-model", nargs="?", const="cifar10_resnet.pt", metavar="PATH", help="write the weights")
parser.add_argument("--checkpoint-every", type=float, default=60, metavar="SECONDS")
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")
parser.add_argument("--threads", type=positive, help="CPU threads; default: the CPUs of the job")

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
        sys.exit(f"train.py: {path} does not exist; --data must name the folder with cifar-10-batches-py")
    except Exception as error:  # a damaged pickle can raise anything
        sys.exit(f"train.py: {path} is not a batch of CIFAR-10: {error}")
    return planes.permute(0, 2, 3, 1), labels


def load(folder, names, limit):
    """Return the first `limit` images and labels of the named batches."""
    parts = [read_batch(folder / "cifar-10-batches-py" / name) for name in names]
    images = torch.cat([images for images, _ in parts])[:limit]
    labels = torch.cat([labels for _, labels in parts])[:limit]
    return images.contiguous().to(device), labels.to(device)


def pad(images):
    """Add a black border to all images, so that a random crop is a plain lookup."""
    return F.pad(images, (0, 0, PAD, PAD, PAD, PAD))


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
# the model: He et al., "Deep Residual Learning" (arXiv 1512.03385), section 4.2, with 1×1 convolutions as shortcuts


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """`blocks` blocks of each width. Every width except the first starts by halving the image."""

    def __init__(self, widths, blocks):
        super().__init__()
        self.conv = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        layers, inputs = [], widths[0]
        for width in widths:
            for _ in range(blocks):
                halve = width != inputs
                layers.append(Block(inputs, width, stride=2 if halve else 1))
                inputs = width
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = self.layers(F.relu(self.bn(self.conv(x))))
        return self.linear(x.mean(dim=(2, 3)))


MODELS = {
    "resnet20": lambda: ResNet(widths=(16, 32, 64), blocks=3),  # 0.27 million parameters
    "resnet18": lambda: ResNet(widths=(64, 128, 256, 512), blocks=2),  # 11.2 million
}


# -----------------------------------------------------------------------------
# one epoch of training, one pass of testing


def train(epoch, total_loss):
    """Train on the batches that are left of one epoch. Return the mean loss of the whole epoch."""
    model.train()
    last_report = 0.0
    for batch, indices in enumerate(sampler, sampler.first_batch):
        indices = torch.tensor(indices)
        x = to_input(augment(train_images, indices, sampler.generator(epoch, batch)))
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            scores = model(x)
        # The sum over this rank's share, divided by the size of the whole batch, because ranks average gradients.
        labels = train_labels[indices.to(device)]
        loss = F.cross_entropy(scores.float(), labels, reduction="sum") / sampler.samples_in_batch(batch)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss * world).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        total_loss += loss.detach()
        step = epoch * len(sampler) + batch + 1
        if time.monotonic() - last_report >= REPORT_EVERY_S:
            last_report = time.monotonic()
            share_loss = finite(loss.item() * world)  # the loss of this rank's share
            log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, loss=share_loss)
        if batch + 1 < len(sampler) and ckpt.should_save(args.checkpoint_every):
            save(epoch, batch + 1, step, losses=gather_losses(total_loss))
    return finite(sum(gather_losses(total_loss)) / len(sampler))


@torch.no_grad()
def test():
    """Return the mean loss and the accuracy on the test images."""
    net.eval()
    total_loss, n_correct = torch.zeros((), device=device), torch.zeros((), device=device)
    for indices in torch.arange(len(test_labels), device=device).split(500):
        y = test_labels[indices]
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            scores = net(to_input(test_images[indices])).float()
        total_loss += F.cross_entropy(scores, y, reduction="sum")
        n_correct += (scores.argmax(1) == y).sum()
    return finite(total_loss.item() / len(test_labels)), n_correct.item() / len(test_labels)


def gather_losses(loss):
    """Return the losses of all ranks."""
    if world == 1:
        return [loss.item()]
    losses = [torch.zeros_like(loss) for _ in range(world)]
    dist.all_gather(losses, loss)
    return [loss.item() for loss in losses]


def finite(loss):
    """Return the loss, or exit if it is not finite."""
    if not math.isfinite(loss):
        sys.exit(f"train.py: the loss became {loss}; a lower --lr may help")
    return loss


def save(epoch, batch, step, metrics=None, losses=()):
    """Save a checkpoint. If the job must stop, exit with code 85, so that another attempt resumes from it."""
    seconds = earlier_seconds + time.monotonic() - started_at
    ckpt.save(epoch=epoch, batch=batch, step=step, metrics=metrics, losses=losses, history=history, seconds=seconds)
    if step < total_steps and ckpt.should_stop():
        ckpt.exit_for_requeue()


def schedule(step):
    """Return the factor on --lr: a warm-up over the first fifth of the steps, then a cosine down to 0."""
    warm_up = min(1, (step + 1) / (0.2 * total_steps))
    return warm_up * (1 + math.cos(math.pi * step / total_steps)) / 2


def write(name, save):
    """Write a file atomically: to a temporary name, then a rename."""
    path = Path(os.environ.get("PACKTRAIN_OUTPUT", ".")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    save(temporary)
    temporary.replace(path)


def print_once(text):
    """Print on rank 0 only."""
    if rank == 0:
        print(text, flush=True)


# -----------------------------------------------------------------------------
# the run

args = parser.parse_args()
# torchrun sets these variables, and packtrain's agent does for a step with several tasks.
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
use_cuda = torch.cuda.is_available() and not args.no_cuda
device = torch.device("cuda", local_rank % torch.cuda.device_count()) if use_cuda else torch.device("cpu")
if use_cuda:
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.cuda.device_count():
        sys.exit("train.py: more processes than GPUs, but NCCL needs one GPU per process; use fewer tasks or --no-cuda")
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if use_cuda else "gloo")
# Half precision on GPUs: float16 needs gradient scaling, the newer bfloat16 does not.
half = torch.bfloat16 if use_cuda and torch.cuda.get_device_capability() >= (8, 0) else torch.float16
scaler = torch.amp.GradScaler(device.type, enabled=use_cuda and half is torch.float16)
# torch would start a thread per core of the machine, even if the job has only two of them.
threads = args.threads or int(os.environ.get("CPUS_PER_TASK", 0))
if threads:
    torch.set_num_threads(threads)
torch.manual_seed(args.seed)

train_images, train_labels = load(args.data, [f"data_batch_{n}" for n in range(1, 6)], args.limit_train)
test_images, test_labels = load(args.data, ["test_batch"], args.limit_test)
train_images = pad(train_images)

net = MODELS[args.model]().to(device, memory_format=torch.channels_last)
model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
sampler = ResumableBatchSampler(len(train_labels), args.batch_size, seed=args.seed)
total_steps = args.epochs * len(sampler)
optimizer = torch.optim.SGD(
    net.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay, nesterov=args.momentum > 0
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
ckpt = Checkpoint(
    "checkpoint.pt",
    model=net,
    optimizer=optimizer,
    scheduler=scheduler,
    scaler=scaler,
    sampler=sampler,
    monitor="accuracy",
    mode="max",
)
try:
    start = ckpt.restore()
except CheckpointError as error:
    sys.exit(f"train.py: {error}")

parameters = sum(p.numel() for p in net.parameters())
print_once(f"{args.model}: {parameters:,} parameters on {world} × {device.type}, {len(train_labels):,} training images")
if start.step:
    print_once(f"resuming from the checkpoint: epoch {start.epoch}, {start.step:,} of {total_steps:,} steps are done")
started_at, earlier_seconds = time.monotonic(), start.extra.get("seconds", 0.0)
history = list(start.extra.get("history", []))
for epoch in range(start.epoch, args.epochs):
    sampler.set_epoch(epoch)
    epoch_started_at, is_resumed = time.monotonic(), epoch == start.epoch
    n_images = (len(sampler) - sampler.first_batch) / len(sampler) * len(train_labels)
    losses = start.extra.get("losses", ()) if is_resumed else ()  # so far, of each rank of the earlier attempt
    loss = train(epoch, torch.tensor(sum(losses[rank::world]), dtype=torch.float32, device=device))
    speed = round(n_images / (time.monotonic() - epoch_started_at))
    step = (epoch + 1) * len(sampler)
    if rank == 0:  # the other ranks wait in `save`
        test_loss, accuracy = test()
        row = {"loss": loss, "accuracy": accuracy, "test_loss": test_loss, "images_per_second": speed}
        log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, **row)
        print_once(f"epoch {epoch}: loss {loss:.3f}, test accuracy {accuracy:.1%}, {speed} images/s")
        history.append({"epoch": epoch, **row})
    save(epoch + 1, 0, step, metrics=history[-1] if history else None)

if rank == 0:
    seconds = round(earlier_seconds + time.monotonic() - started_at, 1)
    result = {"accuracy": history[-1]["accuracy"], "test_loss": history[-1]["test_loss"], "seconds": seconds}
    result.update(parameters=parameters, device=str(device), torch=torch.__version__, processes=world)
    result.update(settings={**vars(args), "data": str(args.data)}, history=history)
    write("metrics.json", lambda path: path.write_text(json.dumps(result, indent=1) + "\n"))
    if args.save_model:
        write(args.save_model, lambda path: torch.save(net.state_dict(), path))
    print_once(f"accuracy {result['accuracy']:.1%} of {len(test_labels):,} test images after {seconds} s")
if world > 1:
    dist.destroy_process_group()
ckpt.close()
