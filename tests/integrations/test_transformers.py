"""ReweighTrainer against per-example gradients taken one by one; tiny models built from a config."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from reweigh.errors import LossShapeError, SettingError

pytest.importorskip(
    "transformers", reason="needs transformers: pip install 'reweigh[transformers]'"
)

import transformers

from reweigh.integrations.sequence_loss import losses_of, sequence_loss
from reweigh.integrations.transformers import ReweighTrainer

LENGTH, WORDS, CLASSES = 5, 20, 3


def classifier(dropout: float = 0.0):
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, max_position_embeddings=8, num_labels=CLASSES,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )
    )  # fmt: skip


def language_model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, n_positions=8,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def texts(n: int, *, seed: int = 0, tokens: bool = False) -> list[dict[str, torch.Tensor]]:
    draws = torch.Generator().manual_seed(seed)
    items = []
    for _ in range(n):
        words = torch.randint(1, WORDS, (LENGTH,), generator=draws)
        labels = torch.randint(CLASSES, (), generator=draws)
        if tokens:
            labels = words.clone()
            labels[: int(torch.randint(LENGTH - 1, (), generator=draws))] = -100
        items.append({"input_ids": words, "attention_mask": torch.ones(LENGTH).long(),
                      "labels": labels})  # fmt: skip
    return items


def collated(items) -> dict[str, torch.Tensor]:
    return {key: torch.stack([item[key] for item in items]) for key in items[0]}


def trainer(folder, model, train, clean, **changes):
    own = {k: changes.pop(k) for k in ("clean_batch_size", "loss", "reweigh") if k in changes}
    options = {
        "per_device_train_batch_size": 4, "max_steps": 1, "learning_rate": 0.1, "optim": "sgd",
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "save_strategy": "no",
        "use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1,
        "dataloader_pin_memory": False, "seed": 3, **changes,
    }  # fmt: skip
    arguments = transformers.TrainingArguments(output_dir=str(folder), **options)
    return ReweighTrainer(
        model=model, args=arguments, train_dataset=train, clean_dataset=clean, **own
    )


def reweighed_gradient(model, loss, train, clean):
    """By the definition: one backward an example, one for the clean mean; trainable parameters."""
    theta = [p for p in model.parameters() if p.requires_grad]
    one_by_one = [
        torch.autograd.grad(loss(model, collated([item])).sum(), theta, materialize_grads=True,
                            allow_unused=True) for item in train
    ]  # fmt: skip
    goal = torch.autograd.grad(
        loss(model, collated(clean)).mean(), theta, materialize_grads=True, allow_unused=True
    )
    scores = torch.stack([sum((a * b).sum() for a, b in zip(g, goal, strict=True))
                          for g in one_by_one])  # fmt: skip
    positive = scores.clamp(min=0)
    weights = positive / positive.sum() if positive.sum() > 0 else positive
    gradient = [sum(w * g[k] for w, g in zip(weights, one_by_one, strict=True))
                for k in range(len(theta))]  # fmt: skip
    return theta, gradient, weights


def test_the_loss_of_each_sequence_is_what_the_model_says_of_it_alone():
    model = language_model()
    items = texts(4, tokens=True)
    losses = sequence_loss(model)(model, collated(items))
    alone = torch.stack([model(**collated([item])).loss for item in items])
    torch.testing.assert_close(losses, alone)


def test_the_loss_of_each_kind_of_label():
    logits = torch.randn(4, 3)
    labels = torch.tensor([0, 2, 1, 1])
    torch.testing.assert_close(
        losses_of(logits, labels), torch.stack([-r.log_softmax(0)[c] for r, c in zip(logits, labels, strict=True)])
    )  # fmt: skip
    numbers = torch.randn(4)
    torch.testing.assert_close(losses_of(logits[:, :1], numbers), (logits[:, 0] - numbers) ** 2)
    many = torch.tensor([[1.0, 0.0, 1.0]] * 4)
    expected = -(many * F.logsigmoid(logits) + (1 - many) * F.logsigmoid(-logits)).mean(1)
    torch.testing.assert_close(losses_of(logits, many), expected)
    tokens = torch.randn(2, 3, 4)
    tags = torch.tensor([[1, -100, 2], [-100, -100, -100]])
    log = tokens.log_softmax(2)
    torch.testing.assert_close(
        losses_of(tokens, tags), torch.stack([-(log[0, 0, 1] + log[0, 2, 2]) / 2, log.sum() * 0])
    )
    with pytest.raises(LossShapeError, match=r"expected labels \(2, 3\)"):
        losses_of(tokens, tags[:, :2])


@pytest.mark.parametrize("kind", ["classifier", "language_model"])
def test_one_step_is_the_definition(kind, tmp_path):
    tokens = kind == "language_model"
    model = language_model() if tokens else classifier()
    train, clean = texts(4, tokens=tokens), texts(3, seed=1, tokens=tokens)
    reference = language_model() if tokens else classifier()
    theta, gradient, weights = reweighed_gradient(reference, sequence_loss(reference), train, clean)
    run = trainer(tmp_path, model, train, clean, reweigh={"safeguard": None})
    run.train()
    for before, g, after in zip(theta, gradient, model.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.1 * g, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        torch.from_numpy(run.ledger.table()["mean_weight"]).float(), 4 * weights.detach(),
        atol=1e-4, rtol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 4])
def test_accumulated_batches_are_weighed_as_one(size, tmp_path):
    """Also micro-batches of one; the clean batch comes in micro-batches, too."""
    train, clean = texts(8), texts(3, seed=1)
    model, reference = classifier(), classifier()
    theta, gradient, weights = reweighed_gradient(reference, sequence_loss(reference), train, clean)
    run = trainer(
        tmp_path, model, train, clean, reweigh={"safeguard": None},
        per_device_train_batch_size=size, gradient_accumulation_steps=8 // size,
    )  # fmt: skip
    run.train()
    for before, g, after in zip(theta, gradient, model.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.1 * g, atol=1e-6, rtol=1e-4)
    found = torch.from_numpy(run.ledger.table()["mean_weight"]).float()
    torch.testing.assert_close(found, 8 * weights.detach(), atol=1e-4, rtol=1e-3)
    losses = sequence_loss(reference)(reference, collated(train)).detach()
    assert run.state.log_history[0]["loss"] == pytest.approx(
        float((weights * losses).sum()), abs=1e-4
    )


def test_the_last_window_of_an_epoch_may_be_shorter(tmp_path):
    run = trainer(
        tmp_path, classifier(), texts(10), texts(3, seed=1), max_steps=-1, num_train_epochs=2,
        per_device_train_batch_size=2, gradient_accumulation_steps=3,
    )  # fmt: skip
    run.train()
    assert run.state.global_step == 4
    assert run.ledger.table()["seen"].tolist() == [2] * 10


def test_with_adapters_only_those_are_aligned_and_trained(tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft: pip install 'reweigh[transformers]'")

    def adapted():
        config = peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM",
                                 fan_in_fan_out=True, init_lora_weights=False)  # fmt: skip
        return peft.get_peft_model(language_model(), config)

    torch.manual_seed(0)
    model, reference = adapted(), adapted()
    reference.load_state_dict(model.state_dict())
    train, clean = texts(4, tokens=True), texts(3, seed=1, tokens=True)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    theta, gradient, _ = reweighed_gradient(reference, sequence_loss(reference), train, clean)
    trainer(tmp_path, model, train, clean, reweigh={"safeguard": None}).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 2
    for before, g, after in zip(theta, gradient, trained, strict=True):
        torch.testing.assert_close(after, before - 0.1 * g, atol=1e-6, rtol=1e-4)
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)


def test_bfloat16_and_the_log(tmp_path):
    run = trainer(tmp_path, classifier(0.1), texts(8), texts(6, seed=1), bf16=True, max_steps=3)
    run.train()
    logs = [entry for entry in run.state.log_history if "clean_loss" in entry]
    assert len(logs) == 3
    for entry in logs:
        assert math.isfinite(entry["clean_loss"])
        assert 0 <= entry["effective_sample_size"] <= 4
        assert 0 <= entry["zero_share"] <= 1


def test_a_run_cut_in_two_is_the_run_in_one_piece(tmp_path):
    train, clean = texts(12), texts(6, seed=1)
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "clean_batch_size": 4}
    whole = trainer(tmp_path / "whole", classifier(0.1), train, clean, **options)
    whole.train()
    resumed = trainer(tmp_path / "whole", classifier(0.1), train, clean, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    one, two = whole.ledger.table(), resumed.ledger.table()
    assert one["seen"].tolist() == two["seen"].tolist()
    assert one["mean_weight"] == pytest.approx(two["mean_weight"], rel=1e-4, nan_ok=True)
    torch.testing.assert_close(whole._weigh.state_dict(), resumed._weigh.state_dict())
    with pytest.raises(SettingError, match=r"reweigh-0\.pt is not there"):
        resumed.train(resume_from_checkpoint=str(tmp_path))


def test_evaluation_is_the_trainers_own(tmp_path):
    model = classifier()
    run = trainer(tmp_path, model, texts(4), texts(2, seed=1))
    found = run.evaluate(texts(4, seed=2))["eval_loss"]
    model.eval()
    assert found == pytest.approx(
        float(model(**collated(texts(4, seed=2))).loss.detach()), rel=1e-5
    )


def test_what_cannot_be_weighed_is_refused(tmp_path):
    with pytest.raises(SettingError, match="one per example"):
        trainer(tmp_path, classifier(), texts(4), texts(2), label_smoothing_factor=0.1)
    model = classifier()
    with pytest.raises(LossShapeError, match="'labels'"):
        sequence_loss(model)(model, {"input_ids": torch.ones(2, 3).long()})
