"""TRL's own trainers with a clean set, on tiny random models: one step is the definition."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

from reweigh.errors import SettingError

pytest.importorskip("trl", reason="needs trl: pip install 'reweigh[trl]'")

import datasets
import tokenizers
import transformers
import trl

from reweigh.integrations.sequence_loss import sequence_loss
from reweigh.integrations.trl import ReweighDPOTrainer, ReweighRewardTrainer, ReweighSFTTrainer

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnop"]
RATE = 0.1
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's advice on settings


def tokenizer():
    model = tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"
    )
    plain = tokenizers.Tokenizer(model)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>"
    )


def network(kind=transformers.LlamaForCausalLM, **more):
    torch.manual_seed(0)
    return kind(
        transformers.LlamaConfig(
            vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0,
            eos_token_id=1, bos_token_id=1, **more,
        )
    )  # fmt: skip


def text(draws, n: int) -> str:
    return " ".join(WORDS[2 + int(i)] for i in torch.randint(len(WORDS) - 2, (n,), generator=draws))


def rows(n: int, *columns: str, seed: int = 0):
    draws = torch.Generator().manual_seed(seed)
    return datasets.Dataset.from_list(
        [{name: (" " if i else "") + text(draws, 3 + j % 3) for i, name in enumerate(columns)}
         for j in range(n)]
    )  # fmt: skip


def options(kind, folder, **more):
    return kind(
        output_dir=str(folder), per_device_train_batch_size=2, gradient_accumulation_steps=4,
        max_steps=1, learning_rate=RATE, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0,
        save_strategy="no", use_cpu=True, report_to="none", disable_tqdm=True, logging_steps=1,
        dataloader_pin_memory=False, bf16=False, gradient_checkpointing=False, seed=3, **more,
    )  # fmt: skip


def assert_one_step_is_the_definition(run, losses_of_row, reference):
    """losses_of_row(model, prepared row): its loss, by a forward of its own."""
    theta = [p for p in reference.parameters() if p.requires_grad]

    def gradient(loss):
        return torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)

    each = [gradient(losses_of_row(reference, row)) for row in run.train_dataset.items]
    clean = torch.stack([losses_of_row(reference, row) for row in run.clean_dataset]).mean()
    goal = gradient(clean)
    scores = torch.stack([sum((a * b).sum() for a, b in zip(g, goal, strict=True)) for g in each])
    weights = scores.clamp(min=0) / scores.clamp(min=0).sum()
    assert 0 < int((weights > 0).sum()) < len(weights)
    run.train()
    trained = [p for p in run.model.parameters() if p.requires_grad]
    for k, (before, after) in enumerate(zip(theta, trained, strict=True)):
        step = sum(w * g[k] for w, g in zip(weights, each, strict=True))
        torch.testing.assert_close(after, before - RATE * step, atol=2e-6, rtol=1e-4)
    weighed = run.weighed_dataset()
    found = torch.tensor(weighed["mean_weight"])
    torch.testing.assert_close(
        found, (len(weights) * weights).double().to(found), atol=1e-3, rtol=1e-2
    )
    assert set(run._given_rows.column_names) < set(weighed.column_names)
    assert "clean_loss" in run.state.log_history[0]


def test_supervised_fine_tuning(tmp_path):
    run = ReweighSFTTrainer(
        model=network(), args=options(trl.SFTConfig, tmp_path), processing_class=tokenizer(),
        train_dataset=rows(8, "prompt", "completion"), reweigh={"safeguard": None},
        clean_dataset=rows(4, "prompt", "completion", seed=1),
    )  # fmt: skip

    def loss(model, row):
        words, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        assert (labels == -100).any()
        logits = model(input_ids=words).logits[0]
        return F.cross_entropy(logits[:-1], labels[1:], ignore_index=-100)

    assert_one_step_is_the_definition(run, loss, network())


def test_supervised_fine_tuning_without_padding(tmp_path):
    """Several examples in one row: a weight for each, and the ledger knows them."""
    run = ReweighSFTTrainer(
        model=network(attn_implementation="eager"), processing_class=tokenizer(),
        args=options(trl.SFTConfig, tmp_path, padding_free=True, max_length=None),
        train_dataset=rows(8, "prompt", "completion"),
        clean_dataset=rows(4, "prompt", "completion", seed=1),
    )  # fmt: skip
    run.train()
    assert run.ledger.table()["seen"].tolist() == [1] * 8
    assert run.ledger.table()["mean_weight"].sum() == pytest.approx(8, rel=1e-3)


def test_a_reward_model(tmp_path):
    kind = transformers.LlamaForSequenceClassification
    run = ReweighRewardTrainer(
        model=network(kind, num_labels=1), args=options(trl.RewardConfig, tmp_path),
        processing_class=tokenizer(), train_dataset=rows(8, "chosen", "rejected"),
        clean_dataset=rows(4, "chosen", "rejected", seed=1), reweigh={"safeguard": None},
    )  # fmt: skip

    def loss(model, row):
        chosen, rejected = (
            model(input_ids=torch.tensor([row[f"{side}_ids"]])).logits[0, 0]
            for side in ("chosen", "rejected")
        )
        return -F.logsigmoid(chosen - rejected)

    assert_one_step_is_the_definition(run, loss, network(kind, num_labels=1))


def logp(model, prompt, completion):
    words = torch.tensor([prompt + completion])
    log = model(input_ids=words).logits[0].log_softmax(1)
    return sum(log[t - 1, words[0, t]] for t in range(len(prompt), words.shape[1]))


@pytest.mark.parametrize("kind", ["sigmoid", "robust"])
def test_direct_preference_optimisation(kind, tmp_path):
    frozen = copy.deepcopy(network())
    torch.manual_seed(1)
    for p in frozen.parameters():
        p.data += 0.05 * torch.randn_like(p)
    run = ReweighDPOTrainer(
        model=network(), ref_model=copy.deepcopy(frozen), processing_class=tokenizer(),
        args=options(trl.DPOConfig, tmp_path, beta=0.5, loss_type=[kind], label_smoothing=0.1 if kind == "robust" else 0.0),
        train_dataset=rows(8, "prompt", "chosen", "rejected"), reweigh={"safeguard": None},
        clean_dataset=rows(4, "prompt", "chosen", "rejected", seed=1),
    )  # fmt: skip

    def loss(model, row):
        ratios = []
        for side in ("chosen", "rejected"):
            ids = row["prompt_ids"], row[f"{side}_ids"]
            ratios.append(logp(model, *ids) - logp(frozen, *ids).detach())
        x = 0.5 * (ratios[0] - ratios[1])
        if kind == "sigmoid":
            return -F.logsigmoid(x)
        return (-0.9 * F.logsigmoid(x) + 0.1 * F.logsigmoid(-x)) / 0.8

    assert_one_step_is_the_definition(run, loss, network())


def test_direct_preference_optimisation_with_adapters(tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft: pip install 'reweigh[trl]'")
    adapted = peft.get_peft_model(
        network(), peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    )
    run = ReweighDPOTrainer(
        model=adapted, processing_class=tokenizer(), args=options(trl.DPOConfig, tmp_path),
        train_dataset=rows(8, "prompt", "chosen", "rejected"),
        clean_dataset=rows(4, "prompt", "chosen", "rejected", seed=1),
    )  # fmt: skip
    run.train()
    assert run.ledger.table()["mean_weight"].sum() == pytest.approx(8, rel=1e-3)


def test_what_cannot_be_weighed_is_refused(tmp_path):
    pairs = rows(4, "prompt", "chosen", "rejected")
    with pytest.raises(SettingError, match=r"loss_type=\['ipo'\].*sigmoid, robust, hinge"):
        ReweighDPOTrainer(
            model=network(), ref_model=network(), processing_class=tokenizer(), train_dataset=pairs, clean_dataset=pairs,
            args=options(trl.DPOConfig, tmp_path, loss_type=["ipo"]),
        )  # fmt: skip
    assert sequence_loss(network())  # a model of TRL's is a model of transformers
