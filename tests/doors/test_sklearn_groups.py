"""Estimators with groups=: a column of X that names the group of every row."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from small_schools import NEW, Grid, grid, rows

import tallbayes as tb
from tallbayes.errors import DataError, InputError

FAR = 5.0
NEW_ROWS = pandas.DataFrame({"x": [0.0, 1.0, 0.4], "school": ["s0", "s3", "not there before"]})


def frame() -> tuple[pandas.DataFrame, np.ndarray]:
    table = rows()
    return pandas.DataFrame({"x": table["x"], "school": table["school"]}), np.where(table["y"], "pass", "fail")


@pytest.fixture(scope="module")
def fitted() -> Any:
    return tb.TallClassifier(groups="school", tolerance=0.05, standardise=False).fit(*frame())


@pytest.fixture(scope="module")
def reference() -> Grid:
    return grid()


def test_chances_are_those_of_a_grid(fitted: Any, reference: Grid) -> None:
    """Errors are those of the same prediction by the result."""
    errors = fitted.result_.predict(NEW_ROWS).error
    chances = fitted.predict_proba(NEW_ROWS)[:, 1]
    for place, (x, school) in enumerate(((0.0, 0), (1.0, 3), (0.4, NEW))):
        mean, _ = reference.moments(1 / (1 + np.exp(-reference.eta(x))), school)
        assert abs(chances[place] - mean) < FAR * errors[place]
    assert fitted.predict(NEW_ROWS).tolist() == np.where(chances > 0.5, "pass", "fail").tolist()


def test_coefficients_are_of_the_other_columns(fitted: Any) -> None:
    assert fitted.coef_.shape == fitted.coef_sd_.shape == (1, 1)
    assert fitted.n_features_in_ == 2
    assert fitted.feature_names_in_.tolist() == ["x", "school"]
    np.testing.assert_allclose(fitted.coef_[0, 0], fitted.result_["mean"].value["x"])
    np.testing.assert_allclose(fitted.intercept_[0], fitted.result_["mean"].value["Intercept"])
    assert len(fitted.effects_) == 14


def test_a_pickled_one_predicts_for_the_same_groups(fitted: Any) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict_proba(NEW_ROWS), fitted.predict_proba(NEW_ROWS), rtol=1e-9)
    np.testing.assert_array_equal(again.effects_.mean, fitted.effects_.mean)
    assert clone(fitted).get_params() == fitted.get_params()


BAD = {
    "no such column": ({"groups": "shool"}, frame()[0], InputError, "Try: 'school'"),
    "no such place": ({"groups": 2}, frame()[0], InputError, "one of the 2 columns"),
    "no names": ({"groups": "school"}, np.zeros((140, 2)), InputError, "X has no names"),
    "sparse": ({"groups": 0}, csr_array(np.ones((140, 2))), InputError, "a dense X"),
    "missing": ({"groups": 1}, np.full((140, 2), np.nan), DataError, "a missing one"),
    "one group": ({"groups": 1}, np.column_stack([rows()["x"], np.ones(140)]), DataError, "at least two groups"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_groups(name: str) -> None:
    options, X, error, message = BAD[name]
    with pytest.raises(error, match=message):
        tb.TallClassifier(**options).fit(X, frame()[1])


def test_three_classes_have_no_groups() -> None:
    with pytest.raises(DataError, match="two classes"):
        tb.TallClassifier(groups="school").fit(frame()[0], np.arange(140) % 3)


def test_without_groups_there_are_no_effects() -> None:
    model = tb.TallRegressor()
    model.result_ = None
    with pytest.raises(AttributeError, match="groups="):
        _ = model.effects_


@pytest.mark.slow
def test_regressors_take_a_column_by_its_number() -> None:
    """Of whole numbers in an array; counts with offsets, whose exposure comes in once."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(10), 12)
    X = np.column_stack([group, rng.normal(size=120)])
    offset = rng.normal(size=120)
    y = rng.poisson(np.exp(0.5 + 0.3 * X[:, 1] + 0.6 * rng.normal(size=10)[group] + offset))
    model = tb.TallCountRegressor(groups=0, tolerance=0.1).fit(X, y, offset=offset)
    value, sd = model.predict(X[:2], return_std=True)
    moved = model.predict(X[:2], offset=np.log([2.0, 3.0]))
    np.testing.assert_allclose(moved, value * [2.0, 3.0], rtol=1e-6)
    assert np.all(sd > 0)
    assert model.effects_.by == "group"
