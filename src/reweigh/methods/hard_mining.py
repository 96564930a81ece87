"""Hard negative mining against imbalance.

    majority   the classes that more than 1/classes of the train labels name
    kept       every minority example of the batch, and equally many majority examples (at least
               one): those with the largest losses
    weight_i   1 / |kept| if kept, else 0

With two classes, the majority is the larger one. With more, several classes can be in the majority;
their examples compete together. If all classes are equally frequent there is no majority, every
example is kept, and this is plain training.
"""

from torch import Tensor

from ..core import weights_from_scores
from .contract import Method, Problem, View, plain_method


def hard_mining(problem: Problem) -> Method:
    """Keep the minority examples and the hardest of the majority."""
    counts = problem.train_labels.long().bincount(minlength=problem.classes)
    majority = counts * problem.classes > counts.sum()

    def weights(view: View, losses: Tensor) -> Tensor:
        common = majority[problem.given(view.ids)].to(losses.device)
        kept = ~common
        candidates = common.nonzero().flatten()
        places = min(max(int(kept.sum()), 1), len(candidates))
        kept[candidates[losses[candidates].topk(places).indices]] = True
        return weights_from_scores(kept.to(losses))

    return plain_method(problem, "hard_mining", weights)
