"""What a good data scientist would try on such data, and which of it to keep; without torch.

Read in this order:

    learner               what a plain model must be able to do
    softmax_regression    a linear one (rotation: of very many columns)
    ridge                 a linear one of numbers
    trees                 forests and boosted trees, as arrays
    light_boosting        boosted trees of LightGBM, as the same arrays
    posterior             the posterior of a label, and the corrected data
    plain                 candidates: a model, the rows it learns, and their labels
    recipes               which of them for which kind of data
    judging               each judged by checked rows it has not seen
    blend                 all of them together
    expectation           what a candidate is worth on new rows
    choice                the one that is kept
"""

# isort: off
from .learner import Arrays, Labels, Fitted, Learner, Places, Reals, Rows, one_hot
from .softmax_regression import SoftmaxModel, SoftmaxRegression
from .ridge import Ridge, RidgeModel
from .rotation import Rotation
from .trees import Boosting, Forest, TreesModel
from .light_boosting import LightBoosting
from .posterior import checked_weight, posterior, posterior_rounds, settle, transitions
from .plain import PlainCandidate, PlainData, PlainModel, Posteriors, even_counts
from .recipes import BOOSTERS, boosting_of, number_candidates, plain_candidates, plain_names
from .judging import (
    LEAST,
    Candidate, Folds, Judgement, Model, agreement, confusion, deal, judge, judge_once, log_likelihood, usual_folds,
)  # fmt: skip
from .expectation import Expectation, easiness, expect, standing
from .choice import Figures, choose, figures, honest_right, lead
from .blend import (
    BLEND,
    Blend,
    Member,
    blend,
    mean_weights,
    mixed,
    mixture_weights,
    sharpened,
    sharpness,
)
