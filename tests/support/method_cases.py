"""A tiny problem and a tiny loop, for tests of methods by themselves."""

from __future__ import annotations

import io
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from reweigh.methods import METHODS, Problem, View, make

N, M, CLASSES, FEATURES, SIZE = 24, 9, 3, 4, 8


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def single_logit(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none")


def squared(outputs, targets):
    return (outputs - targets).square()


class OneOutput(nn.Module):
    """A linear model with outputs [n]."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1)

    def forward(self, inputs):
        return self.linear(inputs).squeeze(1)


def model(kind="classes", seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "classes":
            return nn.Sequential(
                nn.Linear(FEATURES, 6), nn.Dropout(0.2), nn.Tanh(), nn.Linear(6, CLASSES)
            )
        return OneOutput()


def problem(kind="classes", *, steps=20, seed=0, **changes):
    """A problem of a kind ("classes", "binary" with one logit, "regression") that lacks nothing."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N + M, FEATURES, generator=generator)
    if kind == "regression":
        y, classes, criterion = x.sum(1), 0, squared
    elif kind == "binary":
        y, classes, criterion = (x[:, 0] > 0.3).long(), 2, single_logit
    else:
        y, classes, criterion = x[:, :CLASSES].argmax(1), CLASSES, cross_entropy
    oracle = classes or None
    made = Problem(
        criterion=criterion,
        classes=classes,
        train_labels=y[:N],
        clean_labels=y[N:],
        clean=(x[N:], y[N:]),
        steps=steps,
        seed=seed,
        right_share=oracle and torch.linspace(0.5, 1, classes),
        pretrained=model(kind, seed=7),
        confusion=oracle and torch.eye(classes) * 5 + 1,
    )
    return replace(made, **changes), x[:N]


class Run:
    """Plain SGD with momentum over a method's hooks; `saved()` and `load()` are all it remembers."""

    def __init__(
        self,
        name,
        task,
        inputs,
        *,
        kind="classes",
        learning_rate=0.1,
        net=None,
        size=SIZE,
        **options,
    ):
        self.task, self.inputs, self.size = task, inputs, size
        self.method = make(name, task, **options)
        net = model(kind) if net is None else net
        self.model = self.method.wrap(net) if self.method.wrap else net
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate, momentum=0.9)
        self.step = 0

    def ids(self, n):
        return torch.randperm(n, generator=torch.Generator().manual_seed(self.step))[: self.size]

    def view(self):
        clean_x, clean_y = self.task.clean
        if self.method.sample.source == "clean":
            ids = self.ids(len(clean_y))
            train = (clean_x[ids], clean_y[ids])
        else:
            ids = self.ids(len(self.inputs))
            train = (self.inputs[ids], self.task.train_labels[ids])
        rate = self.optimizer.param_groups[0]["lr"]
        return View(self.model, train, self.task.clean, ids, self.step, rate)

    def advance(self, steps):
        """Train; the outcome of every step."""
        outcomes = []
        for _ in range(steps):
            torch.manual_seed(self.step)  # dropout, as a loop that resumes must have it
            weighed = self.method.weigh(self.view(), self.method.losses)
            self.optimizer.zero_grad()
            weighed.loss.backward()
            self.optimizer.step()
            self.step += 1
            outcomes.append(weighed)
        return outcomes

    def saved(self):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": {name: part.state_dict() for name, part in self.method.state.items()},
            "step": self.step,
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def load(self, data):
        state = torch.load(io.BytesIO(data), weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        assert set(state["method"]) == set(self.method.state)
        for name, part in self.method.state.items():
            part.load_state_dict(state["method"][name])
        self.step = state["step"]


def kinds(name):
    """The kinds of problem that a method must work on."""
    return ["classes", "binary"] + ([] if METHODS[name].needs_classes else ["regression"])


class Given(nn.Module):
    """Outputs that the test writes down as inputs, made trainable by a factor of one."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.factor = nn.Parameter(torch.ones((), dtype=dtype))

    def forward(self, inputs):
        return self.factor * inputs


def weigh_losses(method, losses, *, ids=None, step=0, labels=None):
    """Weigh a batch whose losses are written down; the problem's criterion must be `as_given`."""
    losses = torch.as_tensor(losses)
    ids = torch.arange(len(losses)) if ids is None else torch.as_tensor(ids)
    batch = (losses, torch.zeros(len(losses)) if labels is None else labels)
    return method.weigh(View(Given(losses.dtype), batch, None, ids, step, 0.1), method.losses)


def as_given(outputs, targets):
    return outputs


def losses_problem(labels, *, classes=0, **options):
    """A problem in which a batch's inputs are its losses."""
    labels = torch.as_tensor(labels)
    return Problem(
        criterion=as_given,
        classes=classes,
        train_labels=labels,
        clean_labels=labels[:1],
        clean=(torch.zeros(1), labels[:1]),
        steps=options.pop("steps", 10),
        **options,
    )
