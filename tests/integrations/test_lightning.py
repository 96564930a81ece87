"""ReweighMixin in Lightning's loop, against a loop written out."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import reweigh

pytest.importorskip("lightning", reason="needs lightning: pip install 'reweigh[lightning]'")

import lightning.pytorch as L

from reweigh.integrations.lightning import Numbered, ReweighMixin

# Lightning's advice on loaders and logging, and what its own dependencies are about to drop.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*:lightning.fabric.utilities.rank_zero.LightningDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]  # fmt: skip
RATE = 0.1


def rows(n: int, seed: int) -> TensorDataset:
    draws = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(n, 3, generator=draws), torch.randint(2, (n,), generator=draws)
    )


class Net(ReweighMixin, L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def losses(self, batch):
        inputs, targets = batch
        return functional.cross_entropy(self.net(inputs), targets, reduction="none")

    def clean_dataloader(self):
        return DataLoader(rows(12, 1), batch_size=4)

    def train_dataloader(self):
        return DataLoader(Numbered(rows(24, 0)), batch_size=6)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


def fit(model, folder, *, checkpoint=None, **options):
    trainer = L.Trainer(
        accelerator="cpu", devices=1, default_root_dir=folder, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        **{"max_epochs": 2, **options},
    )  # fmt: skip
    trainer.fit(model, ckpt_path=checkpoint)
    return trainer


def written_out(accumulate: int = 1, epochs: int = 2):
    """The same training as a plain loop around `Reweighter`."""
    model = Net()
    weigh = reweigh.Reweighter(model, lambda m, batch: m.losses(batch))
    update = torch.optim.SGD(model.parameters(), lr=RATE)
    clean = [batch for _ in range(20) for batch in model.clean_dataloader()]
    train = [b.item for _ in range(epochs) for b in model.train_dataloader()]
    for start in range(0, len(train), accumulate):
        joined = [
            tuple(map(torch.cat, zip(*side[start : start + accumulate], strict=True)))
            for side in (train, clean)
        ]
        weigh(*joined).loss.backward()
        update.step()
        update.zero_grad()
    return model


def assert_same(a: nn.Module, b: nn.Module) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_trains_as_the_loop_written_out(tmp_path, accumulate):
    model = Net()
    trainer = fit(model, tmp_path, accumulate_grad_batches=accumulate)
    assert_same(model, written_out(accumulate))
    assert model.ledger.table()["seen"].tolist() == [2] * 24
    assert {"clean_loss", "effective_sample_size", "zero_share"} <= set(trainer.callback_metrics)


def test_bfloat16(tmp_path):
    model = Net()
    start = model.net[0].weight.detach().clone()
    fit(model, tmp_path, precision="bf16-mixed")
    assert model.net[0].weight.dtype == torch.float32
    assert not torch.equal(model.net[0].weight, start)


def test_a_checkpoint_brings_everything_back(tmp_path):
    whole, first = Net(), Net()
    fit(whole, tmp_path, max_epochs=3)
    fit(first, tmp_path, max_epochs=1).save_checkpoint(tmp_path / "one.ckpt")
    resumed = Net()
    fit(resumed, tmp_path, max_epochs=3, checkpoint=tmp_path / "one.ckpt")
    assert_same(whole, resumed)
    torch.testing.assert_close(whole._weigh.state_dict(), resumed._weigh.state_dict())
    one, two = whole.ledger.table(), resumed.ledger.table()
    assert two["seen"].tolist() == [3] * 24
    assert one["mean_weight"] == pytest.approx(two["mean_weight"], rel=1e-4)


def test_a_copy_weighs_by_itself(tmp_path):
    model = Net()
    fit(model, tmp_path)
    copied = copy.deepcopy(model)
    fit(copied, tmp_path)
    assert copied._weigh.model is copied
    assert model._weigh.model is model


def test_without_numbers_there_is_no_ledger(tmp_path):
    class Bare(Net):
        def train_dataloader(self):
            return DataLoader(rows(24, 0), batch_size=6)

    model = Bare()
    fit(model, tmp_path)
    assert_same(model, written_out())
    assert model.ledger is None


def test_a_missing_piece_is_named(tmp_path):
    class Half(ReweighMixin, L.LightningModule):
        pass

    with pytest.raises(NotImplementedError, match=r"Half has no losses\(batch\)"):
        Half().losses(None)
    with pytest.raises(NotImplementedError, match=r"Half has no clean_dataloader\(\)"):
        Half().clean_dataloader()


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {tests!r})
import torch, lightning.pytorch as L
torch.set_num_threads(1)
from integrations.test_lightning import Net
model = Net()
trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
                    default_root_dir={out!r}, enable_progress_bar=False,
                    enable_model_summary=False, enable_checkpointing=False)
trainer.fit(model)
trainer.save_checkpoint({out!r} + "/both.ckpt")
torch.save([p.detach() for p in model.parameters()], {out!r} + f"/{{trainer.global_rank}}.pt")
"""


def test_two_processes_stay_equal_and_share_a_ledger(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), out=str(tmp_path)))
    subprocess.run([sys.executable, script], check=True, timeout=300)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for a, b, start in zip(*ranks, Net().parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, start)
    kept = torch.load(tmp_path / "both.ckpt", weights_only=True)["reweigh"]
    ledger = reweigh.audit.Ledger(24)
    ledger.load_state_dict(kept["ledger"])
    assert ledger.table()["seen"].tolist() == [2] * 24
