"""A table with wrong labels, scikit-learn, and fifty rows that somebody checked.

pip install 'reweigh[skorch]'
python examples/sklearn_table.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from reweigh.integrations.sklearn import ReweighClassifier


def main() -> None:
    draws = np.random.default_rng(0)
    X, truth = load_digits(return_X_y=True)
    X, X_test, truth, y_test = train_test_split(X, truth, test_size=400, random_state=0)
    checked = np.concatenate([np.flatnonzero(truth == digit)[:5] for digit in range(10)])
    X_clean, y_clean = X[checked], truth[checked]

    # 40% of the labels turn into threes.
    X, truth = np.delete(X, checked, axis=0), np.delete(truth, checked)
    wrong = draws.random(len(truth)) < 0.4
    y = np.where(wrong, 3, truth)

    model = MLPClassifier(random_state=0, max_iter=100)
    model.fit(X / 16, y)
    print(f"plain       test accuracy {model.score(X_test / 16, y_test):.2f}")

    model = ReweighClassifier(max_epochs=15, random_state=0)
    model.fit(X, y, X_clean=X_clean, y_clean=y_clean)
    print(f"reweighed   test accuracy {model.score(X_test, y_test):.2f}")

    suspects = np.argsort(-model.suspicion_)[:100]
    print(f"of the 100 most suspicious rows, {(y != truth)[suspects].sum()} are mislabelled")


if __name__ == "__main__":
    main()
