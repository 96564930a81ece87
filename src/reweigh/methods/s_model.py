"""S-Model: a softmax layer on top of the network models how labels go wrong.

    p(label j | x) = sum_i p(class i | x) T_ij         T_ij = exp b_ij / sum_k exp b_ik
    f_i            = - log p(label given | x)          b trained together with the network

    s_model        T starts near the identity: 1 - e on the diagonal, e / (classes - 1) elsewhere
    s_model_conf   T starts as the confusion of a plain model: train examples counted by the class
                   it predicts (row) and the label given (column). One pseudo-example per row is
                   added, in the proportions above, so that no entry is zero

The network itself starts from fresh weights in both. At test time it is used without the layer.

Goldberger, Ben-Reuven: Training Deep Neural Networks Using a Noise Adaptation Layer, 2017 (the
simple form, in which T does not depend on x).
"""

from typing import Any

from torch import Tensor, nn

from ..errors import SettingError
from .contract import Method, Problem, evenly, weighed_by
from .probabilities import log_probabilities, losses_from, near_identity, of_label, through
from .requirements import require


class NoiseLayer(nn.Module):
    """`base` followed by a trainable layer of label transitions; the output is log p(label | x)."""

    def __init__(self, base: nn.Module, transitions: Tensor) -> None:
        super().__init__()
        self.base = base
        like = next((p for p in base.parameters() if p.is_floating_point()), transitions)
        self.logits = nn.Parameter(transitions.log().to(like))

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Log-probabilities of the labels as given, [n, classes]."""
        log_p = log_probabilities(self.base(*inputs, **options), classes=len(self.logits))
        return through(log_p, self.logits.log_softmax(dim=1))


def s_model(problem: Problem, *, noise: float = 0.1) -> Method:
    """A noise layer that starts near the identity; `noise` is e."""
    _check(noise)
    return _with_layer(problem, "s_model", near_identity(problem.classes, noise))


def s_model_conf(problem: Problem, *, noise: float = 0.1) -> Method:
    """A noise layer that starts as a plain model's confusion."""
    _check(noise)
    confusion = require(problem, "confusion", "s_model_conf").float().cpu()
    smooth = confusion + near_identity(problem.classes, noise)
    return _with_layer(problem, "s_model_conf", smooth / smooth.sum(1, keepdim=True))


def _with_layer(problem: Problem, name: str, transitions: Tensor) -> Method:
    return Method(
        name,
        losses=losses_from(problem, lambda log_p, labels: -of_label(log_p, labels)),
        weigh=weighed_by(evenly),
        wrap=lambda model: NoiseLayer(model, transitions),
    )


def _check(noise: float) -> None:
    if not 0 < noise < 1:
        raise SettingError(f"noise is {noise}; expected a share strictly between 0 and 1")
