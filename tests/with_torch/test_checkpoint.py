"""Tests of Checkpoint with real torch."""

from __future__ import annotations

import os
import random
import signal
import threading
import warnings

import numpy
import pytest
import torch
from torch import nn

from packtrain.errors import UsageError
from packtrain.torch import Checkpoint, CheckpointError, ResumableBatchSampler, TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    names = ("RESUME", "CHECKPOINTS", "STOP", "DEADLINE", "METRICS")
    for name in names:
        monkeypatch.delenv(f"PACKTRAIN_{name}", raising=False)
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    yield tmp_path
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Training:
    """A small model that uses random numbers of every source."""

    def __init__(self, width=4, **options):
        self.model = nn.Sequential(nn.Linear(width, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4, 4])
        self.generator = torch.Generator().manual_seed(5)
        self.width = width
        stateful = {"optimizer": self.optimizer, "scheduler": self.scheduler, "generator": self.generator}
        self.ckpt = Checkpoint("c.pt", model=self.model, **stateful, **options)

    def step(self):
        noise = random.random() + float(numpy.random.rand()) + float(torch.rand((), generator=self.generator))
        loss = self.model(torch.randn(8, self.width) + noise).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()


def seed_all():
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)


def model_values(model):
    return {name: value.tolist() for name, value in model.state_dict().items()}


def fill(model, number):
    with torch.no_grad():
        for value in model.parameters():
            value.fill_(number)


def saved_step(path):
    return torch.load(path, weights_only=True)["packtrain"]["training_state"]["step"]


def test_resumed_training_is_exact(output):
    seed_all()
    first = Training()
    assert first.ckpt.restore() == TrainingState()
    [first.step() for _ in range(3)]
    first.ckpt.save(epoch=2, batch=1, step=3, metrics={"loss": 0.5}, history=[{"epoch": 1}])
    expected = [first.step() for _ in range(5)]
    first.ckpt.close()
    random.seed(9)
    numpy.random.seed(9)
    torch.manual_seed(9)
    second = Training()
    assert second.ckpt.restore() == TrainingState(2, 1, 3, None, {"loss": 0.5}, {"history": [{"epoch": 1}]})
    assert [second.step() for _ in range(5)] == expected
    assert model_values(first.model) == model_values(second.model)
    assert first.scheduler.state_dict() == second.scheduler.state_dict()
    second.ckpt.close()


def test_save_is_a_snapshot(output):
    """Training changes the model while the thread writes the copy."""
    training = Training()
    for number in range(4):
        fill(training.model, number)
        training.ckpt.save(epoch=1, step=number)
        fill(training.model, -1)
    training.ckpt.close()
    for name, number in {"c.pt": 3, ".c.pt.tmp-previous-1": 2}.items():
        saved = torch.load(output / name, weights_only=True)
        assert saved["packtrain"]["training_state"]["step"] == number
        assert torch.equal(saved["model"]["0.weight"], torch.full((3, 4), float(number)))


def test_previous_and_best_checkpoints_are_kept(output):
    training = Training(max_to_keep=3, monitor="accuracy", mode="max")
    for step, accuracy in enumerate([0.1, 0.9, 0.5, float("nan"), 0.9, 0.2]):
        training.ckpt.save(epoch=1, step=step, metrics={"accuracy": accuracy})
    training.ckpt.close()
    steps = {path.name: saved_step(path) for path in output.iterdir()}
    assert steps == {"c.pt": 5, ".c.pt.tmp-previous-1": 4, ".c.pt.tmp-previous-2": 3, "c.best.pt": 1}
    again = Training(max_to_keep=1, monitor="accuracy", mode="max")
    assert again.ckpt.restore().best_value == 0.9
    again.ckpt.save(epoch=1, step=6, metrics={"accuracy": 0.89})
    again.ckpt.close()
    assert saved_step(output / "c.best.pt") == 1


def test_lost_best_file_is_replaced(output):
    training = Training(monitor="accuracy", mode="max")
    training.ckpt.save(epoch=1, step=1, metrics={"accuracy": 0.9})
    training.ckpt.close()
    (output / "c.best.pt").unlink()
    again = Training(monitor="accuracy", mode="max")
    assert again.ckpt.restore().best_value == 0.9
    again.ckpt.save(epoch=1, step=2, metrics={"accuracy": 0.8})
    again.ckpt.close()
    assert saved_step(output / "c.best.pt") == 2


def test_lower_is_better(output):
    training = Training(monitor="loss")
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        training.ckpt.save(epoch=1, step=step, metrics={"loss": loss})
    training.ckpt.close()
    assert saved_step(output / "c.best.pt") == 1


def test_invalid_mode(output):
    with pytest.raises(UsageError, match="mode must be 'min' or 'max', not 'best'"):
        Training(monitor="loss", mode="best")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_bit(path):
    """Flip a bit in the middle of a tensor, which torch.load does not detect."""
    data = bytearray(path.read_bytes())
    offset = data.index(torch.full((3, 4), 3.0).numpy().tobytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, empty, flip_bit])
def test_damaged_file_is_skipped(output, damage):
    training = Training()
    for number in (2, 3):
        fill(training.model, number)
        training.ckpt.save(epoch=1, step=number)
    training.ckpt.close()
    assert not (output / "c.pt").samefile(output / ".c.pt.tmp-previous-1")
    damage(output / "c.pt")
    again = Training()
    with pytest.warns(UserWarning, match=r"c\.pt is damaged \(.+\); trying the previous checkpoint"):
        assert again.ckpt.restore().step == 2
    assert torch.equal(again.model[0].weight, torch.full((3, 4), 2.0))
    again.ckpt.close()


class OtherFormat(Checkpoint):
    """The format of another program, which has no states of the optimizer or of random numbers."""

    def to_file(self, state):
        return {"net": state["model"], "last_epoch": state["packtrain"]["training_state"]["epoch"] - 1}

    def from_file(self, content):
        return {"model": content["net"], "packtrain": {"training_state": {"epoch": content["last_epoch"] + 1}}}


def test_format_of_another_program(output):
    source, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with OtherFormat("c.pt", model=source) as ckpt:
        ckpt.save(epoch=12, step=1)
    saved = torch.load(output / "c.pt", weights_only=True)
    assert saved["last_epoch"] == 11
    torch.save({**saved, "net": {f"module.{name}": value for name, value in saved["net"].items()}}, output / "c.pt")
    optimizer = torch.optim.SGD(other.parameters(), lr=1)
    with pytest.warns(UserWarning, match="no state of optimizer: they start from their initial state"):
        assert OtherFormat("c.pt", model=other, optimizer=optimizer).restore() == TrainingState(epoch=12)
    assert model_values(source) == model_values(other)


def test_wrappers_are_removed(output):
    """A checkpoint of a wrapped model fits a bare one, and the other way round."""
    bare = nn.Linear(2, 2)
    with Checkpoint("c.pt", model=nn.DataParallel(bare)) as ckpt:
        ckpt.save(epoch=1, step=1)
    assert list(torch.load(output / "c.pt")["model"]) == ["weight", "bias"]
    other = nn.Linear(2, 2)
    Checkpoint("c.pt", model=nn.DataParallel(other)).restore()
    assert torch.equal(bare.weight, other.weight)


def test_scaler_may_be_enabled_or_disabled(output):
    """It is disabled without a GPU, or with a newer one; the next attempt may run on another node."""
    on, off = (torch.amp.GradScaler("cpu", enabled=enabled) for enabled in (True, False))
    for saved, resumed in ((off, on), (on, off)):
        with Checkpoint("c.pt", model=nn.Linear(1, 1), scaler=saved) as ckpt:
            ckpt.save(epoch=1, step=1)
        assert Checkpoint("c.pt", model=nn.Linear(1, 1), scaler=resumed).restore().step == 1


def test_checkpoint_of_another_model(output):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1)
    with pytest.raises(CheckpointError, match=r"c\.pt does not fit this training: .*size mismatch"):
        Training(width=5).ckpt.restore()


def test_checkpoint_of_another_sampler(output):
    with Checkpoint("c.pt", model=nn.Linear(1, 1), sampler=ResumableBatchSampler(100, 10, seed=1)) as ckpt:
        ckpt.save(epoch=1, step=1)
    with pytest.raises(CheckpointError, match="made with global_batch_size 10, now 20 and seed 1, now 2: its position"):
        Checkpoint("c.pt", model=nn.Linear(1, 1), sampler=ResumableBatchSampler(100, 20, seed=2)).restore()


def test_unsupported_type(output):
    with (
        Training().ckpt as ckpt,
        pytest.raises(CheckpointError, match=r"\['extra'\]\['rows'\]\[1\] is a set, which a checkpoint cannot hold"),
    ):
        ckpt.save(epoch=1, step=1, rows=[1, {2}])
    assert list(output.iterdir()) == []


def test_numpy_scalars(output):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1, metrics={"loss": numpy.float32(0.5)}, seen=numpy.int64(3))
    training_state = Training().ckpt.restore()
    assert (training_state.metrics, training_state.extra) == ({"loss": 0.5}, {"seen": 3})


def test_failed_save_is_reported_by_the_next(output):
    """The thread blocks while it opens a pipe without a reader, and then fails to sync it."""
    pipe = output / f".c.pt.tmp-{os.getpid()}"
    training = Training()
    os.mkfifo(pipe)
    training.ckpt.save(epoch=1, step=1)
    assert not training.ckpt.should_save(every_s=0), "a save is in progress"
    reader = threading.Thread(target=pipe.read_bytes)
    reader.start()
    with pytest.warns(UserWarning, match=r"c\.pt could not be written: .*; training continues without it"):
        training.ckpt.save(epoch=1, step=2)
    reader.join()
    training.ckpt.close()
    assert Training().ckpt.restore().step == 2
    assert sorted(path.name for path in output.iterdir()) == ["c.pt"]


def test_close_raises_if_the_last_save_failed(output):
    (output / "folder").write_text("a file")
    ckpt = Checkpoint("folder/c.pt", model=nn.Linear(1, 1))
    ckpt.save(epoch=1, step=1)
    with pytest.raises(CheckpointError, match=r"folder/c\.pt could not be written"):
        ckpt.exit_for_requeue()
    broken = Checkpoint("folder/c.pt", model=nn.Linear(1, 1))
    with pytest.warns(UserWarning, match="could not be written"), pytest.raises(KeyError), broken:
        broken.save(epoch=1, step=1)
        raise KeyError("the first error")


def test_exit_for_requeue(output):
    training = Training()
    assert not training.ckpt.should_save(every_s=3600) and not training.ckpt.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert training.ckpt.should_save(every_s=3600) and training.ckpt.should_stop()
    training.ckpt.save(epoch=1, step=1)
    with pytest.raises(SystemExit) as exit_info:
        training.ckpt.exit_for_requeue()
    assert exit_info.value.code == 85
    assert Training().ckpt.restore().step == 1


def test_should_save_after_the_interval(output):
    training = Training()
    assert training.ckpt.should_save(every_s=0) and not training.ckpt.should_save(every_s=3600)


def test_agent_is_notified_of_each_save(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", str(output / "notices"))
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1)
        ckpt.save(epoch=2, step=2)
    first, second = (output / "notices").read_text().splitlines()
    assert first == '{"path": "c.pt", "step": 1, "epoch": 1}' and '"step": 2' in second


def test_restore_from_packtrain_resume(output, monkeypatch):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=4)
    (output / "c.pt").rename(output / "restored")
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "restored"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Training().ckpt.restore().step == 4


def test_numpy_and_torch_scalars(output):
    """A loss may still have its graph."""
    training = Training(monitor="loss")
    loss = training.model(torch.randn(8, 4)).pow(2).mean()
    position = {"epoch": torch.tensor(2), "batch": numpy.int32(1), "step": numpy.int64(3)}
    training.ckpt.save(**position, metrics={"loss": loss, "accuracy": numpy.float32(0.5)}, mine=loss)
    training.ckpt.close()
    restored = Training(monitor="loss").ckpt.restore()
    assert (restored.epoch, restored.batch, restored.step) == (2, 1, 3)
    assert restored.metrics == {"loss": loss.item(), "accuracy": 0.5}
    assert restored.best_value == loss.item()
    assert restored.extra["mine"] == loss.detach()
