"""A table of label issues has Datalab's columns and finds wrong labels; OpenDataVal gets values of rows."""

import sys
import types
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from sklearn.metrics import roc_auc_score

from reweigh.errors import DataError, MissingExtraError
from reweigh.integrations.datalab import label_issues


def clusters(n, seed):
    draw = np.random.default_rng(seed)
    truth = draw.integers(3, size=n)
    return draw.normal(size=(n, 4)) + 2.5 * np.eye(3, 4)[truth], truth


@pytest.fixture(scope="module")
def noisy():
    rows, truth = clusters(300, 0)
    wrong = np.random.default_rng(1).random(300) < 0.3
    given = np.where(wrong, (truth + 1) % 3, truth)
    checked, right = clusters(
        120, 2
    )  # with 60, one or two odd right ones decide whether any is flagged
    return rows, given, checked, right, wrong, truth


def test_the_table_has_datalabs_columns_and_finds_wrong_labels(noisy):
    rows, given, checked, right, wrong, truth = noisy
    names = np.array(["ant", "bee", "cow"])
    table = label_issues(rows, names[given], checked, names[right])
    assert list(table.columns)[:4] == [
        "is_label_issue",
        "label_score",
        "given_label",
        "predicted_label",
    ]
    assert table["given_label"].tolist() == names[given].tolist()
    assert table["label_score"].between(0, 1).all()
    assert roc_auc_score(~wrong, table["label_score"]) > 0.9
    flagged = table["is_label_issue"].to_numpy()
    assert flagged.sum() > 30
    assert wrong[flagged].mean() > 0.8
    assert (table["predicted_label"][flagged] == names[truth][flagged]).mean() > 0.8
    assert (table["predicted_label"] == table["given_label"])[~flagged].all()


@pytest.mark.parametrize("change", ["width", "labels", "few"])
def test_what_does_not_fit_is_refused(noisy, change):
    rows, given, checked, right, *_ = noisy
    if change == "width":
        checked = checked[:, :2]
    elif change == "labels":
        given = given[:-1]
    else:
        checked, right = checked[:5], right[:5]
    with pytest.raises(DataError, match="expected"):
        label_issues(rows, given, checked, right)


def test_without_opendataval_its_evaluator_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendataval", None)
    monkeypatch.delitem(sys.modules, "reweigh.integrations.opendataval", raising=False)
    with pytest.raises(MissingExtraError, match="pip install --no-deps opendataval"):
        import_module("reweigh.integrations.opendataval")


def test_values_are_low_where_labels_are_wrong(noisy, monkeypatch):
    """Through the interface of OpenDataVal; a stand-in for it where it is not installed."""
    try:
        import_module("opendataval.dataval.api")
    except ImportError:
        api = types.ModuleType("opendataval.dataval.api")
        api.DataEvaluator, api.ModelLessMixin = Evaluator, object
        for name in ("opendataval", "opendataval.dataval"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "opendataval.dataval.api", api)
    monkeypatch.delitem(sys.modules, "reweigh.integrations.opendataval", raising=False)
    made = import_module("reweigh.integrations.opendataval")
    rows, given, checked, right, wrong, _ = noisy
    evaluator = made.ReweighEvaluator(trees=False, random_state=0)
    evaluator.input_data(rows, np.eye(3)[given], checked, np.eye(3)[right])
    values = evaluator.train_data_values().evaluate_data_values()
    assert roc_auc_score(~wrong, values) > 0.9
    with pytest.raises(DataError, match="one-hot"):
        evaluator.input_data(rows, given[:, None], checked, right[:, None]).train_data_values()
    sys.modules.pop("reweigh.integrations.opendataval", None)


class Evaluator:
    def input_data(self, x_train, y_train, x_valid, y_valid):
        self.x_train, self.y_train, self.x_valid, self.y_valid = x_train, y_train, x_valid, y_valid
        return self
