"""Train the classic small network on MNIST's handwritten digits. Plain PyTorch; read it from top to bottom.

    python3 train.py --data FOLDER --save-model          14 epochs, then mnist_cnn.pt
    torchrun --nproc-per-node 2 train.py --data FOLDER   two processes, with one GPU each if there are GPUs
    python3 train.py --help                              every setting

FOLDER holds MNIST's four idx files, as published (.gz) or unpacked. Outputs are written to $PACKTRAIN_OUTPUT, or
without packtrain to the current folder: checkpoint.pt during training, metrics.json, and with --save-model the
weights. Killed and started again with the same settings, the program resumes from its checkpoint, and the result is
the same to the last bit.
"""

import argparse
import gzip
import json
import math
import os
import sys
import time
from pathlib import Path

# Waiting threads release their core instead of spinning. torch reads this variable when it is imported.
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


parser = argparse.ArgumentParser(description="Train a small convolutional network on MNIST.")
parser.add_argument("--data", type=Path, required=True, help="folder with the four idx files")
parser.add_argument("--batch-size", type=positive, default=64, help="of each process")
parser.add_argument("--test-batch-size", type=positive, default=1000)
parser.add_argument("--epochs", type=positive, default=14)
parser.add_argument("--lr", type=float, default=1.0, help="Adadelta's learning rate in the first epoch")
parser.add_argument("--gamma", type=float, default=0.7, help="factor on the learning rate after each epoch")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--limit-train", type=positive, metavar="N", help="train with the first N images only")
parser.add_argument("--limit-test", type=positive, metavar="N", help="test with the first N images only")
parser.add_argument("--save-model", nargs="?", const="mnist_cnn.pt", metavar="PATH", help="write the weights")
parser.add_argument("--checkpoint-every", type=float, default=60, metavar="SECONDS")
parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")
parser.add_argument("--threads", type=positive, help="CPU threads; default: the CPUs of the job")

MEAN, STD = 0.1307, 0.3081  # of the 60,000 training images
REPORT_EVERY_S = 1.0


# -----------------------------------------------------------------------------
# data: an idx file is four bytes (two zeros, the type, the number of dimensions), the dimensions, then the values


def read_idx(name):
    """Read an idx file, compressed or not, as a tensor of bytes."""
    path = next((path for path in (args.data / name, args.data / f"{name}.gz") if path.exists()), None)
    if path is None:
        sys.exit(f"train.py: {args.data} has no {name}[.gz]; --data must name the folder with MNIST's four idx files")
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read()
        shape = torch.frombuffer(bytearray(content[4 : 4 + 4 * content[3]]), dtype=torch.uint8).view(-1, 4)
        shape = [int.from_bytes(bytes(row.tolist()), "big") for row in shape]
        return torch.frombuffer(bytearray(content[4 + 4 * content[3] :]), dtype=torch.uint8).view(shape)
    except Exception as error:  # a damaged file can raise anything
        sys.exit(f"train.py: {path} is not one of MNIST's idx files: {error}")


def load(part, limit):
    """Return the first `limit` images (N, 28, 28) and labels (N) of `train` or `t10k`."""
    images, labels = read_idx(f"{part}-images-idx3-ubyte"), read_idx(f"{part}-labels-idx1-ubyte")
    return images[:limit].to(device), labels[:limit].long().to(device)


def to_input(images):
    """Convert bytes (N, 28, 28) to normalised floats (N, 1, 28, 28)."""
    return ((images.float() / 255 - MEAN) / STD).unsqueeze(1)


# -----------------------------------------------------------------------------
# the model


class Net(nn.Module):
    """Two 3×3 convolutions, a pooling, two linear layers: 1.2 million parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


# -----------------------------------------------------------------------------
# one epoch of training, one pass of testing


def train(epoch, total_loss):
    """Train on the batches that are left of one epoch. Return the mean loss of the whole epoch."""
    model.train()
    last_report = 0.0
    for batch, indices in enumerate(sampler, sampler.first_batch):
        indices = torch.tensor(indices, device=device)
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            output = model(to_input(train_images[indices]))
        # The sum over this rank's share, divided by the size of the whole batch, because ranks average gradients.
        loss = F.nll_loss(output.float(), train_labels[indices], reduction="sum") / sampler.samples_in_batch(batch)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss * world).backward()
        scaler.step(optimizer)
        scaler.update()
        total_loss += loss.detach()
        step = epoch * len(sampler) + batch + 1
        if time.monotonic() - last_report >= REPORT_EVERY_S:
            last_report = time.monotonic()
            share_loss = finite(loss.item() * world)  # the loss of this rank's share
            log_metrics(epoch=epoch, epochs=args.epochs, step=step, total_steps=total_steps, loss=share_loss)
        if batch + 1 < len(sampler) and ckpt.should_save(args.checkpoint_every):
            save(epoch, batch + 1, step, losses=gather_losses(total_loss))
    scheduler.step()
    return finite(sum(gather_losses(total_loss)) / len(sampler))


@torch.no_grad()
def test():
    """Return the mean loss and the accuracy on the test images."""
    net.eval()
    total_loss, n_correct = torch.zeros((), device=device), torch.zeros((), device=device)
    for indices in torch.arange(len(test_labels), device=device).split(args.test_batch_size):
        y = test_labels[indices]
        with torch.autocast(device.type, dtype=half, enabled=use_cuda):
            output = net(to_input(test_images[indices])).float()
        total_loss += F.nll_loss(output, y, reduction="sum")
        n_correct += (output.argmax(1) == y).sum()
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

train_images, train_labels = load("train", args.limit_train)
test_images, test_labels = load("t10k", args.limit_test)

net = Net().to(device)
model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
torch.manual_seed(args.seed + rank)  # the same weights on all ranks, but different dropout
sampler = ResumableBatchSampler(len(train_labels), args.batch_size, seed=args.seed)
total_steps = args.epochs * len(sampler)
optimizer = torch.optim.Adadelta(net.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=args.gamma)
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
print_once(f"{parameters:,} parameters on {world} × {device.type}, {len(train_labels):,} training images")
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
