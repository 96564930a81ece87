"""The scikit-learn estimators: scikit-learn's own checks, and what the clean rows do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.errors import BatchError, ReweighWarning, SettingError

pytest.importorskip("skorch", reason="needs scikit-learn and skorch: pip install 'reweigh[skorch]'")

import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from reweigh.integrations.sklearn import ReweighClassifier, ReweighRegressor

QUICK = {"max_epochs": 15, "lr": 0.1, "hidden_sizes": (16,), "random_state": 0}
QUICKEST = {**QUICK, "max_epochs": 8, "batch_size": 100}


# No check is excepted. They call fit without a clean set, which is allowed with a warning.
@pytest.mark.filterwarnings("ignore::reweigh.errors.ReweighWarning")
@parametrize_with_checks([ReweighClassifier(**QUICKEST), ReweighRegressor(**QUICKEST)])
def test_keeps_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def blobs(n: int = 120, wrong: int = 25) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two clouds; of the rows called "no", the first `wrong` are labelled "yes"."""
    draws = np.random.default_rng(0)
    truth = np.repeat(["no", "yes"], n // 2)
    rows = draws.normal(size=(n, 3)) + 1.5 * (truth == "yes")[:, None]
    given = truth.copy()
    given[:wrong] = "yes"
    return rows.astype(np.float32), given, truth


def clean_part(rows, truth, every: int = 10) -> dict[str, np.ndarray]:
    return {"X_clean": rows[5::every], "y_clean": truth[5::every]}


def test_wrong_labels_count_less_and_are_suspected():
    rows, given, truth = blobs()
    model = ReweighClassifier(**QUICK).fit(rows, given, **clean_part(rows, truth))
    wrong = given != truth
    assert model.sample_weight_.shape == model.suspicion_.shape == (len(rows),)
    assert model.suspicion_[wrong].mean() > 2 * model.suspicion_[~wrong].mean()
    assert model.sample_weight_[wrong].mean() < 0.7 * model.sample_weight_[~wrong].mean()
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(rows)) <= {"no", "yes"}
    np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1)
    assert (model.ledger_.table()["seen"] == QUICK["max_epochs"]).all()


def test_a_regressor_is_not_led_astray_by_wild_targets():
    draws = np.random.default_rng(0)
    rows = draws.uniform(-1, 1, size=(200, 2)).astype(np.float32)
    truth = 100 + 50 * rows[:, 0]
    given = truth.copy()
    given[:70] += 200
    options = {**QUICK, "max_epochs": 60}  # full trust takes up to a hundred steps
    model = ReweighRegressor(**options).fit(rows, given, X_clean=rows[70::5], y_clean=truth[70::5])
    assert np.abs(model.predict(rows) - truth).mean() < 20  # the mean of the given ones is 70 off
    assert model.suspicion_[:70].mean() > model.suspicion_[70:].mean() + 0.3


def test_without_a_clean_set_a_stand_in_is_announced():
    rows, given, _ = blobs()
    with pytest.warns(ReweighWarning, match="no clean set.*X_clean"):
        ReweighClassifier(**QUICK).fit(rows, given)


def test_data_frames_with_their_column_names():
    rows, given, truth = blobs()
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    clean = {"X_clean": frame[5::10], "y_clean": pd.Series(truth[5::10])}
    model = ReweighClassifier(**QUICK).fit(frame, pd.Series(given), **clean)
    same = ReweighClassifier(**QUICK).fit(rows, given, **clean_part(rows, truth))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict_proba(frame), same.predict_proba(rows))
    with pytest.raises(ValueError, match="feature names"):
        ReweighClassifier(**QUICK).fit(frame, given, X_clean=frame[["b", "a", "c"]], y_clean=given)


def test_a_pickle_predicts_the_same_and_holds_no_clean_rows():
    rows, given, truth = blobs()
    model = ReweighClassifier(**QUICK).fit(rows, given, **clean_part(rows, truth))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(again.suspicion_, model.suspicion_)
    assert again.net_.clean is None


def test_a_grid_search_passes_the_clean_set_to_every_fit():
    rows, given, truth = blobs()
    search = GridSearchCV(ReweighClassifier(**QUICK), {"lr": [0.01, 0.1]}, cv=2)
    search.fit(rows, given, **clean_part(rows, truth))
    assert search.best_params_["lr"] in (0.01, 0.1)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_pipeline_transforms_the_clean_rows_too():
    """With `transform_input`, as the page on scikit-learn shows."""
    rows, given, truth = blobs()
    clean = clean_part(rows, truth)
    options = {**QUICK, "standardize": False}
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = Pipeline(
            [
                ("scale", StandardScaler()),
                ("model", ReweighClassifier(**options).set_fit_request(X_clean=True, y_clean=True)),
            ],
            transform_input=["X_clean"],
        ).fit(1000 * rows, given, X_clean=1000 * clean["X_clean"], y_clean=clean["y_clean"])
    scale = StandardScaler().fit(rows)
    alone = ReweighClassifier(**options).fit(
        scale.transform(rows), given, X_clean=scale.transform(clean["X_clean"]),
        y_clean=clean["y_clean"],
    )  # fmt: skip
    np.testing.assert_allclose(
        pipeline.predict_proba(1000 * rows), alone.predict_proba(scale.transform(rows)), atol=1e-3
    )


def test_in_a_plain_pipeline_the_model_standardises_by_itself():
    rows, given, truth = blobs()
    model = make_pipeline(ReweighClassifier(**QUICK))
    clean = {f"reweighclassifier__{k}": v for k, v in clean_part(rows, truth).items()}
    far = [1024 * rows, given]
    clean["reweighclassifier__X_clean"] = 1024 * clean["reweighclassifier__X_clean"]
    near = ReweighClassifier(**QUICK).fit(rows, given, **clean_part(rows, truth))
    np.testing.assert_array_equal(model.fit(*far, **clean).predict(far[0]), near.predict(rows))


def test_a_network_and_options_of_ones_own():
    rows, given, truth = blobs()

    def module(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))

    from skorch.callbacks import EarlyStopping

    model = ReweighClassifier(
        module,
        max_epochs=30,
        net_options={
            "optimizer": torch.optim.AdamW,
            "callbacks": [EarlyStopping(monitor="clean_loss", patience=2, threshold=1.0)],
        },
        random_state=0,
    )
    images = rows.reshape(-1, 3, 1)
    model.fit(images, given, X_clean=images[5::10], y_clean=truth[5::10])
    assert isinstance(model.net_.optimizer_, torch.optim.AdamW)
    assert len(model.net_.history) < 30  # a threshold that no improvement meets stops it
    assert clone(model).module is module


def test_the_seed_decides_and_the_callers_random_numbers_are_left_alone():
    rows, given, truth = blobs()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, second = (
        ReweighClassifier(**QUICK).fit(rows, given, **clean_part(rows, truth)) for _ in range(2)
    )
    assert torch.equal(torch.rand(3), expected)
    np.testing.assert_array_equal(first.predict_proba(rows), second.predict_proba(rows))


def test_mistakes_with_the_clean_set_are_named():
    rows, given, _ = blobs()
    model = ReweighClassifier(**QUICK)
    with pytest.raises(SettingError, match="y_clean is missing"):
        model.fit(rows, given, X_clean=rows)
    with pytest.raises(BatchError, match=r"y_clean holds \['perhaps'\]"):
        model.fit(rows, given, X_clean=rows[:2], y_clean=["no", "perhaps"])
    with pytest.warns(ReweighWarning, match=r"no example of \['yes'\]"):
        model.fit(rows, given, X_clean=rows[:2], y_clean=["no", "no"])
    with pytest.raises(BatchError, match="one class"):
        model.fit(rows, np.repeat("no", len(rows)))
