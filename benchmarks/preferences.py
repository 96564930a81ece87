"""Swapped preferences: DPO plain, conservative, robust, and with weights from checked pairs.

    nice -n 19 python benchmarks/preferences.py [--seeds 0 1 2] [--out results/language-models]

A text is a prompt and a completion of random words. A completion is better the more words it has of one half
of the vocabulary than of the other: a person who compares two prefers that one. A share of the train pairs is
swapped, 40 checked pairs are not. A small transformer is trained by DPO from the same start and for as many steps:

    plain           -log sigmoid(x)
    conservative    labels smoothed by the true share of swapped pairs
    robust          the unbiased loss for that share
    reweighed       plain DPO, pairs weighed by the checked ones (no share is told)
    checked only    plain DPO on the checked pairs alone

Reported: the share of 400 new pairs that the model ranks as the person would. One line per finished cell.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from reweigh.integrations.pair_loss import PreferenceLoss, completion_logps, margins

WORDS, PROMPT, LENGTH, WIDTH = 24, 4, 12, 32
TRAIN, CHECKED, TEST, BATCH, CLEAN_BATCH, STEPS = 512, 40, 400, 32, 16, 150
METHODS = ("plain", "conservative", "robust", "reweighed", "checked only")


class Policy(nn.Module):
    """A layer of causal attention over words; it answers as a model of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> Any:
        h = self.words(input_ids) + self.places.weight
        n, t, _ = h.shape
        heads = self.qkv(h).view(n, t, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        h = h + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return SimpleNamespace(logits=self.head(h + self.narrow(F.gelu(self.wide(h)))))


def pairs(n: int, draws: torch.Generator, swapped: float) -> tuple[Tensor, Tensor]:
    """Texts [n, 2, LENGTH], the preferred one first, and which pairs were swapped [n]."""
    prompt = torch.randint(WORDS, (n, 1, PROMPT), generator=draws).expand(n, 2, PROMPT)
    answers = torch.randint(WORDS, (n, 2, LENGTH - PROMPT), generator=draws)
    merit = (answers < WORDS // 2).float().sum(2) + 0.1 * torch.rand(n, 2, generator=draws)
    order = merit.argsort(1, descending=True)
    wrong = torch.rand(n, generator=draws) < swapped
    order = torch.where(wrong[:, None], order.flip(1), order)
    texts = torch.cat([prompt, answers], dim=2)
    return texts.gather(1, order[:, :, None].expand_as(texts)), wrong


def batch_of(texts: Tensor, reference: nn.Module) -> dict[str, Tensor]:
    """As TRL's collator: chosen texts, then rejected ones."""
    rows = texts.transpose(0, 1).flatten(0, 1)
    mask = (torch.arange(LENGTH) >= PROMPT).expand_as(rows)
    batch = {"input_ids": rows, "completion_mask": mask}
    with torch.no_grad():
        return {**batch, "reference_logps": completion_logps(reference, batch)}


def run(method: str, swapped: float, seed: int) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(seed)
    (train, wrong), (checked, _) = pairs(TRAIN, draws, swapped), pairs(CHECKED, draws, 0.0)
    test, _ = pairs(TEST, draws, 0.0)
    torch.manual_seed(seed)
    model = Policy()
    reference = copy.deepcopy(model).requires_grad_(False)
    kind = "robust" if method == "robust" else "sigmoid"
    smoothing = swapped if method in ("conservative", "robust") else 0.0
    loss = PreferenceLoss(beta=0.5, kind=kind, smoothing=smoothing)
    weigh = reweigh.Reweighter(model, loss)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    source = checked if method == "checked only" else train
    to_wrong = []
    for _ in range(STEPS):
        ids = torch.randint(len(source), (BATCH,))
        batch = batch_of(source[ids], reference)
        optimizer.zero_grad()
        if method == "reweighed":
            some = checked[torch.randperm(CHECKED)[:CLEAN_BATCH]]
            step = weigh(batch, batch_of(some, reference))
            step.loss.backward()
            to_wrong.append(float(step.weights[wrong[ids]].sum()))
        else:
            loss(model, batch).mean().backward()
        optimizer.step()
    with torch.no_grad():
        right = margins(model, batch_of(test, reference)) > 0
    return {
        "method": method, "swapped": swapped, "seed": seed,
        "accuracy": float(right.float().mean()),
        "weight_of_swapped": statistics.mean(to_wrong) if to_wrong else None,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    shares = sorted({row["swapped"] for row in rows})
    lines = ["| method | " + " | ".join(f"{share:.0%} swapped" for share in shares) + " |",
             "|---|" + "---|" * len(shares)]  # fmt: skip
    for method in METHODS:
        cells = []
        for share in shares:
            found = [r["accuracy"] for r in rows if (r["method"], r["swapped"]) == (method, share)]
            spread = statistics.stdev(found) if len(found) > 1 else 0.0
            cells.append(
                f"{statistics.mean(found):.3f} +- {spread:.3f} (n={len(found)})" if found else ""
            )
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/language-models"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "preferences.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["method"], row["swapped"], row["seed"]) for row in rows}
    for seed in options.seeds:
        for swapped in (0.2, 0.4):
            for method in METHODS:
                if (method, swapped, seed) not in done:
                    rows.append(run(method, swapped, seed))
                    with file.open("a") as out:
                        out.write(json.dumps(rows[-1]) + "\n")
                    print(rows[-1], flush=True)
    (options.out / "preferences.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
