"""Choose the penalty of a private classifier on private records, paid from a ledger: ``python -m examples.tuning``.

The records are scikit-learn's 569 breast tumours. Let 169 of them be public (an earlier study, say) and 400 private:
the public ones set the scale of the covariates and score the fits, the private ones are learned from.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from discretion.privacy import Ledger
from discretion.selection import NegativeBinomial, PrivateLogisticRegression, PrivateSearchCV

EPSILON, DELTA = 3.0, 1e-5


def records() -> tuple[Any, Any]:
    """(X, y) of the private records, and of the public ones."""
    loaded: Any = load_breast_cancer(return_X_y=True)
    X, y = loaded
    order = np.random.default_rng(0).permutation(len(y))
    private, public = order[:400], order[400:]
    # Public: what the covariates are scaled by must not be read off private records.
    centre, spread = X[public].mean(axis=0), X[public].std(axis=0)
    X = (X - centre) / spread
    return (X[private], y[private]), (X[public], y[public])


def search(public: Any, folder: Path) -> PrivateSearchCV:
    """All of it is public: the candidates, the law of the number of fits, the score, the budget."""
    return PrivateSearchCV(
        PrivateLogisticRegression(classes=(0, 1), feature_bound=8.0),
        {"alpha": [1.0, 3.0, 10.0, 30.0]},
        NegativeBinomial.of_mean(2.0, 10.0),
        validation=public,
        epsilon=EPSILON,  # of tuning and release together
        delta=DELTA,
        unit="one woman",
        ledger=folder / "tumours.ledger",
        journal=folder / "tumours.journal",
    )


def main(folder: Path) -> PrivateSearchCV:
    """Rehearse, open a ledger, ask for the price, search."""
    (X, y), public = records()
    Ledger.create(folder / "tumours.ledger", dataset="400 tumours", epsilon=EPSILON, delta=DELTA)
    tuned = search(public, folder)

    # Made-up records of the same form: an error of a fit or of the score shows here, and nowhere later.
    rng = np.random.default_rng(1)
    scores = tuned.rehearse(rng.normal(size=X.shape), rng.integers(0, 2, len(y)))
    print(f"Rehearsed {len(scores)} candidates on made-up records.")

    print(f"Before a record is read: {tuned.privacy_loss(len(y)).guarantee(DELTA)}")
    tuned.fit(X, y)
    print(f"{tuned.outcome_}: {tuned.best_params_}, accuracy on public data {tuned.best_score_:.3f}")
    print(f"One fit alone would have cost epsilon {tuned.release_.one_run:.3g}.")
    print(tuned.release_.certificate.text())
    return tuned


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
