"""Images with wrong labels, Lightning, and fifty images that somebody checked.

pip install 'reweigh[lightning,app]'
python examples/lightning_images.py
"""

from __future__ import annotations

import lightning.pytorch as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from reweigh.integrations.lightning import Numbered, ReweighMixin


def digits() -> tuple[TensorDataset, TensorDataset, TensorDataset, torch.Tensor]:
    """Train images (40% of them called three), checked ones, test ones, and what is wrong."""
    bunch = load_digits()
    images, truth = torch.tensor(bunch.images).float()[:, None] / 16, torch.tensor(bunch.target)
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(0))
    test, checked, rest = order[:400], order[400:450], order[450:]
    flip = torch.rand(len(rest), generator=torch.Generator().manual_seed(1)) < 0.4
    given = torch.where(flip, 3, truth[rest])
    train = TensorDataset(images[rest], given)
    parts = (TensorDataset(images[part], truth[part]) for part in (checked, test))
    return train, *parts, given != truth[rest]


class Classifier(ReweighMixin, L.LightningModule):
    def __init__(self, clean: TensorDataset) -> None:
        super().__init__()
        self.clean = clean
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(),
            nn.Linear(64, 10),
        )  # fmt: skip

    def losses(self, batch):
        inputs, targets = batch
        return F.cross_entropy(self.net(inputs), targets, reduction="none")

    def clean_dataloader(self):
        return DataLoader(self.clean, batch_size=50)

    def test_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("test_accuracy", (self.net(inputs).argmax(1) == targets).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9)


def main() -> None:
    train, clean, test, wrong = digits()
    torch.manual_seed(0)
    model = Classifier(clean)
    trainer = L.Trainer(
        max_epochs=12, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(Numbered(train), batch_size=50, shuffle=True))
    found = trainer.test(model, DataLoader(test, batch_size=400), verbose=False)
    print(f"reweighed   test accuracy {found[0]['test_accuracy']:.2f}")
    suspects = torch.from_numpy(model.ledger.table()["zero_share"]).argsort(descending=True)[:100]
    print(f"of the 100 most suspicious images, {int(wrong[suspects].sum())} are mislabelled")


if __name__ == "__main__":
    main()
