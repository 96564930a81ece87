"""Text with wrong labels, transformers' Trainer, and a few texts that somebody checked.

    pip install 'reweigh[transformers]'
    python examples/transformers_text.py

The texts are made up and the model is tiny, so that nothing is downloaded; with your own, only the
marked lines matter.
"""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from reweigh.integrations.transformers import ReweighTrainer

WORDS, LENGTH, CLASSES = 60, 12, 4


def texts(n: int, *, seed: int) -> list[dict[str, torch.Tensor]]:
    """Words at random, half of them typical of the text's class."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=draws)
    words = torch.randint(20, WORDS, (n, LENGTH), generator=draws)
    typical = 5 * labels[:, None] + torch.randint(5, (n, LENGTH), generator=draws)
    words = torch.where(torch.rand(n, LENGTH, generator=draws) < 0.5, typical, words)
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels, strict=True)]


def spoiled(items: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """45% of the labels turn into class 0."""
    flip = torch.rand(len(items), generator=torch.Generator().manual_seed(1)) < 0.45
    return [{**i, "labels": i["labels"] * ~f} for i, f in zip(items, flip, strict=True)]


def network() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                   intermediate_size=32, max_position_embeddings=LENGTH, num_labels=CLASSES,
                   initializer_range=0.2)
    )  # fmt: skip


def accuracy(trainer: Trainer, items: list[dict[str, torch.Tensor]]) -> float:
    found = trainer.predict(items)
    return float((found.predictions.argmax(1) == found.label_ids).mean())


def main() -> None:
    truth = texts(800, seed=0)
    train, clean, test = spoiled(truth), texts(40, seed=2), texts(400, seed=3)
    args = TrainingArguments(
        output_dir="transformers_text", num_train_epochs=10, per_device_train_batch_size=32,
        learning_rate=3e-3, save_strategy="no", report_to="none", disable_tqdm=True,
        logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip

    trainer = Trainer(model=network(), args=args, train_dataset=train)
    trainer.train()
    print(f"plain       test accuracy {accuracy(trainer, test):.2f}")

    trainer = ReweighTrainer(model=network(), args=args, train_dataset=train, clean_dataset=clean)
    trainer.train()
    print(f"reweighed   test accuracy {accuracy(trainer, test):.2f}")

    wrong = torch.tensor([a["labels"] != b["labels"] for a, b in zip(train, truth, strict=True)])
    suspects = torch.from_numpy(trainer.ledger.table()["zero_share"]).argsort(descending=True)[:100]
    print(f"of the 100 most suspicious texts, {int(wrong[suspects].sum())} are mislabelled")


if __name__ == "__main__":
    main()
