"""packtrain.torch.Checkpoint with the real torch: what is saved comes back, whatever happened to the files."""

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
    """A program of a few parameters that draws from every source of random numbers."""

    def __init__(self, width=4, **options):
        self.model = nn.Sequential(nn.Linear(width, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4, 4])
        self.draws = torch.Generator().manual_seed(5)
        self.width = width
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.ckpt = Checkpoint("c.pt", **parts, draws=self.draws, **options)

    def step(self):
        noise = random.random() + float(numpy.random.rand()) + float(torch.rand((), generator=self.draws))
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


def values(model):
    return {name: value.tolist() for name, value in model.state_dict().items()}


def filled(model, number):
    with torch.no_grad():
        for value in model.parameters():
            value.fill_(number)


def test_training_goes_on_with_the_very_same_numbers(output):
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
    position = second.ckpt.restore()
    assert position == TrainingState(2, 1, 3, None, {"loss": 0.5}, {"history": [{"epoch": 1}]})
    assert [second.step() for _ in range(5)] == expected
    assert values(first.model) == values(second.model)
    assert first.scheduler.state_dict() == second.scheduler.state_dict()
    second.ckpt.close()


def test_a_save_is_of_its_moment(output):
    """Training goes on while the thread writes; the memory of the copy is used again only afterwards."""
    training = Training()
    for number in range(4):
        filled(training.model, number)
        training.ckpt.save(epoch=1, step=number)
        filled(training.model, -1)
    training.ckpt.close()
    for name, number in {"c.pt": 3, ".c.pt.tmp-kept-1": 2}.items():
        saved = torch.load(output / name, weights_only=True)
        assert saved["packtrain"]["position"]["step"] == number
        assert torch.equal(saved["model"]["0.weight"], torch.full((3, 4), float(number)))


def test_the_last_ones_and_the_best_are_kept(output):
    training = Training(keep=3, best="accuracy")
    for step, accuracy in enumerate([0.1, 0.9, 0.5, float("nan"), 0.9, 0.2]):
        training.ckpt.save(epoch=1, step=step, metrics={"accuracy": accuracy})
    training.ckpt.close()
    steps = {path.name: torch.load(path)["packtrain"]["position"]["step"] for path in output.iterdir()}
    assert steps == {"c.pt": 5, ".c.pt.tmp-kept-1": 4, ".c.pt.tmp-kept-2": 3, "c.best.pt": 1}
    again = Training(keep=1, best="accuracy")
    assert again.ckpt.restore().best_value == 0.9
    again.ckpt.save(epoch=1, step=6, metrics={"accuracy": 0.89})
    again.ckpt.close()
    assert torch.load(output / "c.best.pt")["packtrain"]["position"]["step"] == 1


def test_a_best_file_that_was_lost_with_its_machine(output):
    training = Training(best="accuracy")
    training.ckpt.save(epoch=1, step=1, metrics={"accuracy": 0.9})
    training.ckpt.close()
    (output / "c.best.pt").unlink()
    again = Training(best="accuracy")
    assert again.ckpt.restore().best_value == 0.9
    again.ckpt.save(epoch=1, step=2, metrics={"accuracy": 0.8})
    again.ckpt.close()
    assert torch.load(output / "c.best.pt")["packtrain"]["position"]["step"] == 2


def test_the_best_may_be_the_lowest(output):
    training = Training(best="-loss")
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        training.ckpt.save(epoch=1, step=step, metrics={"loss": loss})
    training.ckpt.close()
    assert torch.load(output / "c.best.pt")["packtrain"]["position"]["step"] == 1


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path):
    path.write_bytes(b"")


def one_bit(path):
    """In the middle of a tensor: torch.load would not notice."""
    data = bytearray(path.read_bytes())
    where = data.index(torch.full((3, 4), 3.0).numpy().tobytes())
    data[where] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, emptied, one_bit])
def test_a_damaged_file_is_told_and_the_one_before_taken(output, damage):
    training = Training()
    for number in (2, 3):
        filled(training.model, number)
        training.ckpt.save(epoch=1, step=number)
    training.ckpt.close()
    one_of_two = output / "c.pt"
    assert not one_of_two.samefile(output / ".c.pt.tmp-kept-1")
    damage(one_of_two)
    again = Training()
    with pytest.warns(UserWarning, match=r"c\.pt is damaged \(.+\); the one before it is taken"):
        assert again.ckpt.restore().step == 2
    assert torch.equal(again.model[0].weight, torch.full((3, 4), 2.0))
    again.ckpt.close()


def test_deepsquares_files_are_read(output):
    """Model, best accuracy and epoch; written by a program whose model was wrapped."""
    source = Training()
    filled(source.model, 7)
    wrapped = {f"module.{name}": value for name, value in source.model.state_dict().items()}
    torch.save({"net": wrapped, "acc": 88.25, "epoch": 11}, output / "ckpt.pth")
    training = Training(best="accuracy")
    with pytest.warns(UserWarning, match="no state of optimizer, scheduler, draws: fresh ones are used"):
        position = training.ckpt.restore(output / "ckpt.pth")
    assert position == TrainingState(epoch=13, best_value=0.8825)
    assert values(training.model) == values(source.model)


def test_deepsquares_program_reads_ours(output):
    training = Training(deepsquare=True, best="accuracy")
    training.ckpt.save(epoch=4, step=30, metrics={"accuracy": 0.625})
    training.ckpt.close()
    saved = torch.load(output / "c.pt", weights_only=True)
    assert (saved["acc"], saved["epoch"]) == (62.5, 2)
    assert saved["net"].keys() == training.model.state_dict().keys()
    assert Training().ckpt.restore().epoch == 4


def test_wrappers_leave_no_trace(output):
    """Saved from a wrapped model, loaded by a bare one, and the other way round."""
    bare = nn.Linear(2, 2)
    with Checkpoint("c.pt", model=nn.DataParallel(bare)) as ckpt:
        ckpt.save(epoch=1, step=1)
    assert list(torch.load(output / "c.pt")["model"]) == ["weight", "bias"]
    other = nn.Linear(2, 2)
    Checkpoint("c.pt", model=nn.DataParallel(other)).restore()
    assert torch.equal(bare.weight, other.weight)


def test_a_scaler_may_be_switched_on_and_off_by_the_machine(output):
    """Without a GPU, or with a newer one, no scaling is needed, and the next machine may be another."""
    on, off = (torch.amp.GradScaler("cpu", enabled=enabled) for enabled in (True, False))
    for saved, resumed in ((off, on), (on, off)):
        with Checkpoint("c.pt", model=nn.Linear(1, 1), scaler=saved) as ckpt:
            ckpt.save(epoch=1, step=1)
        assert Checkpoint("c.pt", model=nn.Linear(1, 1), scaler=resumed).restore().step == 1


def test_another_model_is_refused_in_a_sentence(output):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1)
    with pytest.raises(CheckpointError, match=r"c\.pt does not fit this training: .*size mismatch"):
        Training(width=5).ckpt.restore()


def test_another_order_is_refused_in_a_sentence(output):
    with Checkpoint("c.pt", model=nn.Linear(1, 1), order=ResumableBatchSampler(100, 10, seed=1)) as ckpt:
        ckpt.save(epoch=1, step=1)
    with pytest.raises(CheckpointError, match="made with batch_size 10, now 20 and seed 1, now 2: its position"):
        Checkpoint("c.pt", model=nn.Linear(1, 1), order=ResumableBatchSampler(100, 20, seed=2)).restore()


def test_what_a_checkpoint_cannot_hold_is_named(output):
    with (
        Training().ckpt as ckpt,
        pytest.raises(CheckpointError, match=r"\['extra'\]\['rows'\]\[1\] is a set, which a checkpoint cannot hold"),
    ):
        ckpt.save(epoch=1, step=1, rows=[1, {2}])
    assert list(output.iterdir()) == []


def test_numpys_scalars_are_welcome(output):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1, metrics={"loss": numpy.float32(0.5)}, seen=numpy.int64(3))
    position = Training().ckpt.restore()
    assert (position.metrics, position.extra) == ({"loss": 0.5}, {"seen": 3})


def test_training_does_not_wait_and_a_failed_save_is_told(output):
    """The thread hangs in opening a pipe that nobody reads; then it fails: a pipe cannot be flushed to a disk."""
    pipe = output / f".c.pt.tmp-{os.getpid()}"
    training = Training()
    os.mkfifo(pipe)
    training.ckpt.save(epoch=1, step=1)
    assert not training.ckpt.should_save(every_s=0), "one is being written"
    drained = threading.Thread(target=pipe.read_bytes)
    drained.start()
    with pytest.warns(UserWarning, match=r"c\.pt could not be written: .*; training goes on without it"):
        training.ckpt.save(epoch=1, step=2)
    drained.join()
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
        raise KeyError("what went wrong first")


def test_asked_to_leave_it_saves_and_exits_with_85(output):
    training = Training()
    assert not training.ckpt.should_save(every_s=3600) and not training.ckpt.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert training.ckpt.should_save(every_s=3600) and training.ckpt.should_stop()
    training.ckpt.save(epoch=1, step=1)
    with pytest.raises(SystemExit) as left:
        training.ckpt.exit_for_requeue()
    assert left.value.code == 85
    assert Training().ckpt.restore().step == 1


def test_a_save_is_due_when_time_has_passed(output):
    training = Training()
    assert training.ckpt.should_save(every_s=0) and not training.ckpt.should_save(every_s=3600)


def test_each_save_is_announced_when_it_stands(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", str(output / "announced"))
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=1)
        ckpt.save(epoch=2, step=2)
    first, second = (output / "announced").read_text().splitlines()
    assert first == '{"path": "c.pt", "step": 1, "epoch": 1}' and '"step": 2' in second


def test_what_the_agent_restored_under_another_name(output, monkeypatch):
    with Training().ckpt as ckpt:
        ckpt.save(epoch=1, step=4)
    (output / "c.pt").rename(output / "restored")
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "restored"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Training().ckpt.restore().step == 4


def test_scalars_of_numpy_and_torch_are_welcome(output):
    """As in `report`; a loss that still has its graph too."""
    training = Training(best="-loss")
    loss = training.model(torch.randn(8, 4)).pow(2).mean()
    where = {"epoch": torch.tensor(2), "batch": numpy.int32(1), "step": numpy.int64(3)}
    training.ckpt.save(**where, metrics={"loss": loss, "accuracy": numpy.float32(0.5)}, mine=loss)
    training.ckpt.close()
    found = Training(best="-loss").ckpt.restore()
    assert (found.epoch, found.batch, found.step) == (2, 1, 3)
    assert found.metrics == {"loss": loss.item(), "accuracy": 0.5}
    assert found.best_value == loss.item()
    assert found.extra["mine"] == loss.detach()
