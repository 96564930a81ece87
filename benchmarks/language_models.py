"""What a window costs: a transformer with adapters, micro-batches of one, against plain accumulation.

    python benchmarks/language_models.py [--rounds 5] [--out results/language-models]

Four layers, LoRA of rank 8 on every attention and feed-forward matrix, the rest frozen; 16 micro-batches
of one sequence between two optimizer steps, m clean sequences. Seconds of one core (process time, one
thread), both ways in turn; the ratio is that of the medians. Also with every parameter trained, at the level
of tokens, and with the clean sequences in one batch and `one_pass=True`, so that micro-batches are joined up to
its size. Else clean sequences come one by one, as the others do.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from reweigh.experiments.provenance import commit

WORDS, LENGTH, WIDTH, LAYERS, RANK, WINDOW = 512, 64, 128, 4, 8, 16


class LoRA(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(self, fan_in: int, fan_out: int, *, frozen: bool) -> None:
        super().__init__()
        self.base = nn.Linear(fan_in, fan_out)
        self.down, self.up = (
            nn.Linear(fan_in, RANK, bias=False),
            nn.Linear(RANK, fan_out, bias=False),
        )
        self.base.requires_grad_(not frozen)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = LoRA(WIDTH, 3 * WIDTH, frozen=frozen)
        self.out = LoRA(WIDTH, WIDTH, frozen=frozen)
        self.wide = LoRA(WIDTH, 4 * WIDTH, frozen=frozen)
        self.narrow = LoRA(4 * WIDTH, WIDTH, frozen=frozen)
        for norm in (self.before, self.after):
            norm.requires_grad_(not frozen)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        heads = self.qkv(self.before(x)).view(n, t, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class Transformer(nn.Module):
    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block(frozen=frozen) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, WORDS)
        self.words.requires_grad_(not frozen)
        self.head.requires_grad_(not frozen)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(x)))


def by_token(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    (x,) = batch
    return F.cross_entropy(model(x[:, :-1]).mT, x[:, 1:], reduction="none")


def by_sequence(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return by_token(model, batch).mean(1)


def measure(*, frozen: bool, level: str, clean: int, joined: bool, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Transformer(frozen=frozen)
    loss = by_token if level == "token" else by_sequence
    weigh = reweigh.Reweighter(model, loss, one_pass=joined or None)

    def batch(n: int) -> tuple[Tensor]:
        return (torch.randint(WORDS, (n, LENGTH + 1)),)

    train = [batch(1) for _ in range(WINDOW)]
    checked: Any = batch(clean) if joined else [batch(1) for _ in range(clean)]

    def plain() -> None:
        for one in train:
            (loss(model, one).mean() / WINDOW).backward()

    def window() -> None:
        weigh.window(train, checked).backward()

    seconds: dict[str, list[float]] = {"plain": [], "window": []}
    for round_ in range(rounds + 3):  # the first few prove the back-end
        for name, step in (("plain", plain), ("window", window)):
            model.zero_grad()
            began = time.process_time()
            step()
            if round_ >= 3:
                seconds[name].append(time.process_time() - began)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "trained": "adapters" if frozen else "all", "level": level, "window": WINDOW, "m": clean, "joined": joined,
        "plain_seconds": medians["plain"], "window_seconds": medians["window"],
        "ratio": medians["window"] / medians["plain"], "goal": 1.5 + clean / WINDOW,
        "backend": "own gradient" if level == "sequence" and not joined else str(weigh.backend), "rounds": rounds, "torch": torch.__version__,
        "machine": platform.machine(), "commit": commit(),
    }  # fmt: skip


CELLS = [
    (True, "sequence", 4, False), (True, "sequence", 16, False), (True, "token", 4, False), (False, "sequence", 4, False),
    (True, "sequence", 4, True), (True, "sequence", 16, True), (True, "token", 4, True), (False, "sequence", 4, True),
    (False, "token", 4, True),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/language-models"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for f, level, m, joined in CELLS:
        rows.append(measure(frozen=f, level=level, clean=m, joined=joined, rounds=options.rounds))
        (options.out / "cost.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = ["| trained | level | window | clean | scores by | plain steps | goal 1.5 + m/n |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    table += [
        f"| {r['trained']} | {r['level']} | {r['window']} x 1 | {r['m']}{' at once, joined' if r['joined'] else ' x 1'} | {r['backend']} | {r['ratio']:.2f} | "
        f"{r['goal']:.2f} |"
        for r in rows
    ]
    (options.out / "cost.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))


if __name__ == "__main__":
    main()
