"""Losses of sequences, turns and tokens, padded or packed: held to loops over tokens, and to brute force."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import reweigh
from reweigh.errors import BatchError, LossShapeError, UnknownNameError
from support import definition

pytest.importorskip(
    "transformers", reason="needs transformers: pip install 'reweigh[transformers]'"
)

import transformers

from reweigh.integrations.sequence_loss import sequence_loss
from reweigh.integrations.transformers import ReweighTrainer

WORDS = 20


def language_model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, n_positions=32,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    ).double()  # fmt: skip


def translator():
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, dropout_rate=0.0,
            decoder_start_token_id=0, pad_token_id=0,
        )
    ).double()  # fmt: skip


def chat(n: int, length: int = 9, *, seed: int = 0):
    """Two answers each, of other lengths, and padding."""
    draws = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (n, length), generator=draws)
    labels = words.clone()
    labels[:, :2] = -100
    labels[:, 4:6] = -100
    labels[: n // 2, 5:] = -100  # these have one answer
    mask = torch.ones_like(words)
    mask[: n // 2, 7:] = 0
    return {"input_ids": words, "attention_mask": mask, "labels": labels}


def runs(row):
    """The places of labels, run by run."""
    found, before = [], None
    for t, label in enumerate(row.tolist()):
        if label != -100:
            if before != t - 1:
                found.append([])
            found[-1].append(t)
            before = t
    return found


def by_hand(model, batch, level, *, shifted=True):
    """A list of lists of losses: examples, parts."""
    logits = model(**batch).logits if not shifted else model(
        **{k: v for k, v in batch.items() if k != "labels"}
    ).logits  # fmt: skip
    result = []
    for i, row in enumerate(batch["labels"]):
        loss = {
            t: -logits[i, t - shifted].log_softmax(0)[row[t]]
            for run in runs(row) for t in run if t or not shifted
        }  # fmt: skip
        parts = {
            "sequence": [list(loss)],
            "turn": runs(row),
            "token": [[t] for t in loss],
        }[level]
        result.append([sum(loss[t] for t in part) / len(part) for part in parts if part])
    return result


@pytest.mark.parametrize("level", ["sequence", "turn", "token"])
@pytest.mark.parametrize("make", [language_model, translator])
def test_the_losses_of_each_level(make, level):
    model, batch = make(), chat(4)
    expected = by_hand(model, batch, level, shifted=make is language_model)
    found = sequence_loss(model, level=level)(model, batch)
    if level == "sequence":
        found = found.unsqueeze(1)
    width = max(map(len, expected))
    assert found.shape == (4, width)
    for row, parts in zip(found, expected, strict=True):
        torch.testing.assert_close(row[: len(parts)], torch.stack(parts))
        assert not row[len(parts) :].any()
    clean = sequence_loss(model, level=level).clean(model, batch)
    torch.testing.assert_close(clean, torch.cat([torch.stack(parts) for parts in expected]))


@pytest.mark.parametrize("level", ["sequence", "turn", "token"])
def test_every_part_has_its_score_and_masked_tokens_have_none(level):
    model, train, clean = language_model(), chat(6), chat(4, seed=1)
    loss = sequence_loss(model, level=level)
    theta = list(model.parameters())
    goal = torch.autograd.grad(
        torch.cat([torch.stack(p) for p in by_hand(model, clean, level)]).mean(), theta
    )
    expected = [
        [
            sum((a * b).sum() for a, b in zip(
                torch.autograd.grad(f, theta, retain_graph=True), goal, strict=True))
            for f in parts
        ]
        for parts in by_hand(model, train, level)
    ]  # fmt: skip
    step = reweigh.Reweighter(model, loss, safeguard=None)(train, clean)
    scores = step.scores if level != "sequence" else step.scores.unsqueeze(1)
    weights = step.weights if level != "sequence" else step.weights.unsqueeze(1)
    for row, weight, parts in zip(scores, weights, expected, strict=True):
        torch.testing.assert_close(row[: len(parts)], torch.stack(parts), rtol=1e-7, atol=1e-11)
        assert not weight[len(parts) :].any()
    assert float(step.weights.sum()) == pytest.approx(1)


def packed(items, *, drop: tuple[str, ...] = ()):
    """Examples in one row, as transformers' own collator puts them."""
    collate = transformers.DataCollatorWithFlattening(return_seq_idx=True)
    batch = dict(collate([{k: v.tolist() for k, v in item.items()} for item in items]))
    return {key: value for key, value in batch.items() if key not in drop}


def items(*lengths: int, seed: int = 0):
    draws = torch.Generator().manual_seed(seed)
    words = [torch.randint(1, WORDS, (length,), generator=draws) for length in lengths]
    return [
        {"input_ids": w, "labels": torch.where(torch.arange(len(w)) < 2, -100, w)} for w in words
    ]


def alone(item):
    return {key: value.unsqueeze(0) for key, value in item.items()}


@pytest.mark.parametrize("drop", [("seq_idx",), ("position_ids",)])
@pytest.mark.parametrize("level", ["sequence", "turn", "token"])
def test_packed_examples_have_the_losses_they_have_alone(level, drop):
    model = language_model()
    model.set_attn_implementation("eager")
    examples = items(5, 8, 3, 6)
    batch = packed(examples, drop=drop)
    if "position_ids" in drop:  # nothing tells the model where examples begin, but the loss knows

        def logits(item):
            place = [one is item for one in examples].index(True)
            start = sum(len(one["labels"]) for one in examples[:place])
            whole = model(input_ids=batch["input_ids"]).logits
            return whole[0, start : start + len(item["labels"])]
    else:

        def logits(item):
            return model(input_ids=item["input_ids"].unsqueeze(0)).logits[0]

    expected = []
    for item in examples:
        values = [
            -logits(item)[t - 1].log_softmax(0)[item["labels"][t]]
            for t in range(2, len(item["labels"]))
        ]
        expected.append(
            torch.stack(values) if level == "token" else torch.stack(values).mean()[None]
        )
    inputs = {key: value for key, value in batch.items() if key != "seq_idx"}
    if "position_ids" in drop:
        inputs["segment_ids"] = batch["seq_idx"]
    found = sequence_loss(model, level=level)(model, inputs)
    found = found if found.ndim == 2 else found.unsqueeze(1)
    assert len(found) == 4
    for row, parts in zip(found, expected, strict=True):
        torch.testing.assert_close(row[: len(parts)], parts)
        assert not row[len(parts) :].any()


def test_packed_examples_are_scored_one_by_one():
    model = language_model()
    model.set_attn_implementation("eager")
    loss = sequence_loss(model)
    train, clean = items(5, 8, 3, 6), items(4, 7, seed=1)
    expected = torch.cat(
        [
            reweigh.example_scores(model, loss, alone(item), packed(clean, drop=("seq_idx",)))
            for item in train
        ]
    )
    step = reweigh.Reweighter(model, loss, safeguard=None)(
        packed(train, drop=("seq_idx",)), packed(clean, drop=("seq_idx",))
    )
    torch.testing.assert_close(step.scores, expected, rtol=1e-7, atol=1e-11)
    brute = definition.scores(model, loss, packed(train, drop=("seq_idx",)), alone(clean[0]))
    found = reweigh.example_scores(model, loss, packed(train, drop=("seq_idx",)), alone(clean[0]))
    torch.testing.assert_close(found, brute, rtol=1e-7, atol=1e-11)


def test_padding_after_packed_examples_is_no_example():
    model = language_model()
    loss = sequence_loss(model)
    batch = packed(items(5, 6), drop=("seq_idx",))
    longer = {
        key: torch.cat([value, torch.full((1, 3), -100 if key == "labels" else 0)], dim=1)
        for key, value in batch.items()
    }
    assert len(loss(model, batch)) == len(loss(model, longer)) == 2


def test_positions_of_left_padding_are_no_examples():
    model, batch = language_model(), chat(2)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)
    given = {**batch, "attention_mask": mask, "position_ids": positions}
    assert len(sequence_loss(model)(model, given)) == 2


def test_what_cannot_be_weighed_is_refused():
    model = language_model()
    batch = packed(items(5, 6), drop=("seq_idx", "position_ids"))
    with pytest.raises(
        BatchError, match=r"does not tell where its examples begin; expected position_ids"
    ):
        sequence_loss(model, packed=True)(model, batch)
    with pytest.raises(UnknownNameError, match="level 'tokens'; did you mean 'token'"):
        sequence_loss(model, level="tokens")
    blank = chat(3)
    blank["labels"] = torch.full_like(blank["labels"], -100)
    with pytest.raises(BatchError, match=r"no token of the clean batch has a label.*completion"):
        reweigh.Reweighter(model, sequence_loss(model))(chat(3), blank)
    classifier = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, n_positions=32,
                                pad_token_id=0, bos_token_id=0, eos_token_id=0)
    )  # fmt: skip
    with pytest.raises(LossShapeError, match="level='token' with logits"):
        sequence_loss(classifier, level="token")(
            classifier, {"input_ids": chat(2)["input_ids"], "labels": torch.tensor([0, 1])}
        )


def test_a_loss_with_a_clean_form_is_not_compiled():
    """The compiled graph would take the mean over padding, too."""
    model, train, clean = language_model(), chat(4), chat(3, seed=1)
    loss = sequence_loss(model, level="token")
    step = reweigh.Reweighter(model, loss, compile=True)(train, clean)
    eager = reweigh.Reweighter(model, loss)(train, clean)
    torch.testing.assert_close(step.clean_loss, eager.clean_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(step.scores, eager.scores, rtol=1e-12, atol=0)


def trainer(folder, train, clean, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_steps=2, learning_rate=0.1, optim="sgd", save_strategy="no", use_cpu=True,
        report_to="none", disable_tqdm=True, logging_steps=1, dataloader_pin_memory=False, seed=3,
    )  # fmt: skip
    return ReweighTrainer(
        model=language_model(), args=arguments, train_dataset=train, clean_dataset=clean, **options
    )


def flattened(**options):
    plain = transformers.DataCollatorWithFlattening(**options)
    return lambda batch: plain([{k: v.tolist() for k, v in item.items()} for item in batch])


def test_a_trainer_on_packed_examples_keeps_a_ledger(tmp_path):
    train, clean = items(5, 8, 3, 6, 4, 7, 9, 5), items(4, 7, seed=1)
    run = trainer(tmp_path, train, clean, data_collator=flattened())
    run.train()
    table = run.ledger.table()
    assert table["seen"].tolist() == [1] * 8
    assert table["mean_weight"].sum() == pytest.approx(8, rel=1e-4)
    with pytest.raises(BatchError, match=r"1 losses for a batch of 2 train examples.*position_ids"):
        trainer(tmp_path, train, clean, data_collator=flattened(return_position_ids=False)).train()


def test_a_trainer_weighs_tokens(tmp_path):
    rows = [{key: value[i] for key, value in chat(8).items()} for i in range(8)]
    run = trainer(tmp_path, rows, rows[:3], level="token")
    run.train()
    assert run._weigh.backend.exact
    assert run.ledger.table()["mean_weight"].sum() == pytest.approx(8, rel=1e-4)


def test_the_page_on_language_models_runs(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "language-models.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    rows = [{key: value[i] for key, value in chat(8).items()} for i in range(8)]
    run = trainer(tmp_path, rows, rows[:3])
    names = {"model": language_model(), "arguments": run.args, "collator": run.data_collator,
             "train": rows, "checked": rows[:3]}  # fmt: skip
    exec(compile(code, page.name, "exec"), names)
    assert sorted(names["suspects"]) == list(range(8))
