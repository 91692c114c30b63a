"""Predictions and comparisons of a mixed model, held against its posterior on a grid (`small_schools`).

Answers are held to 5 of their errors: a false alarm in 6e-7 of the runs of one number, if errors are normal.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_schools import FORMULA, NEW, SCHOOLS, Grid, fitted, grid, rows

import tallbayes as tb
from tallbayes.errors import DataError, InputError
from tallbayes.estimator.estimates import Status
from tallbayes.formula.again.rows import with_rows
from tallbayes.formula.encoding import Encoding
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.posterior.coordinates import Part
from tallbayes.posterior.effects import _apart
from tallbayes.programs.compilation import compiled
from tallbayes.results.groups.predictions import Mixed, _with_scales

FAR = 5.0
ASKED = [(0.0, 0), (1.0, 3), (-1.5, 7), (0.4, NEW), (2.0, NEW), (0.5, 3)]


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return fitted()


@pytest.fixture(scope="module")
def reference() -> Grid:
    return grid()


def table_of(asked: list[tuple[float, int]]) -> dict[str, Any]:
    names = [f"s{school}" if school != NEW else "not there before" for _, school in asked]
    return {"x": [x for x, _ in asked], "school": names}


def chance(eta: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-eta)))


def test_known_and_new_groups_are_predicted(result: tb.Result, reference: Grid) -> None:
    found = result.predict(table_of(ASKED))
    assert np.all(found.error < 0.05 * found.sd)
    for place, (x, school) in enumerate(ASKED):
        mean, sd = reference.moments(chance(reference.eta(x)), school)
        assert abs(found.mean[place] - mean) < FAR * found.error[place]
        assert abs(found.sd[place] - sd) < FAR * found.sd_error[place]
    assert found.observation is not None
    np.testing.assert_allclose(found.observation.sd, np.sqrt(found.mean * (1 - found.mean)))


def test_neither_a_row_without_its_effect_nor_one_without_its_variance_would_pass(
    result: tb.Result, reference: Grid
) -> None:
    """The control."""
    found = result.predict(table_of(ASKED))
    for place, (x, school) in enumerate(ASKED):
        level, slope, _ = reference.theta.T
        without = reference.weight @ chance(level + slope * x)
        given = np.sum(reference.share(school) * chance(reference.eta(x)), axis=1)[:, None]
        between = reference.moments(np.broadcast_to(given, reference.share(0).shape), school)[1]
        assert abs(found.sd[place] - between) > FAR * found.sd_error[place]
        if school in (3, 7):
            assert abs(found.mean[place] - without) > FAR * found.error[place]


def test_rows_come_back_in_their_order(result: tb.Result) -> None:
    rng = np.random.default_rng(2)
    asked = [(float(x), int(school)) for x, school in zip(rng.normal(size=40), rng.integers(-1, 9, 40), strict=True)]
    order = rng.permutation(40)
    one, other = result.predict(table_of(asked)), result.predict(table_of([asked[each] for each in order]))
    np.testing.assert_allclose(other.mean, one.mean[order], rtol=1e-3)
    assert np.std(one.mean) > 0.05


def test_a_group_that_is_missing_is_told_from_a_new_one(result: tb.Result) -> None:
    table = {"x": [0.0, 0.0], "school": ["s0", None]}
    with pytest.raises(DataError, match="missing"):
        result.predict(table)
    found = result.predict(table, missing="nan")
    assert np.isnan(found.mean).tolist() == [False, True]


def test_a_loaded_result_knows_new_groups_alone(result: tb.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.tallbayes")
    loaded = tb.load(tmp_path / "result.tallbayes")
    new = table_of([(0.4, NEW)])
    np.testing.assert_array_equal(loaded.predict(new).mean, result.predict(new).mean)
    with pytest.raises(InputError, match="a new group of 'school'; got 's3'"):
        loaded.predict(table_of([(0.4, NEW), (1.0, 3)]))
    with pytest.raises(InputError, match="the rows of 'school'"):
        loaded.compare("school", "s0", "s1")


def test_a_run_reads_the_groups_of_its_table_again(result: tb.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.tallbayes")
    loaded, path = tb.load(tmp_path / "result.tallbayes"), tmp_path / "schools.csv"
    table = rows()
    lines = [f"{float(x)!r},{int(y)},{school}" for x, y, school in zip(*table.values(), strict=True)]
    path.write_text("\n".join(["x,y,school", *lines]))
    settings = {"data": str(path), "formula": FORMULA, "family": "logistic", "raw": True}
    again, here = with_rows(loaded, settings).predict(table_of(ASKED)), result.predict(table_of(ASKED))
    assert np.all(np.abs(again.mean - here.mean) < FAR * np.hypot(again.error, here.error))
    path.write_text(path.read_text() + "\n0.5,1,s0")
    with pytest.raises(DataError, match="the table that was fitted"):
        with_rows(loaded, settings).predict(table_of(ASKED))
    path.unlink()
    with pytest.raises(InputError, match="a new group"):
        with_rows(loaded, settings).predict(table_of(ASKED))


def test_two_groups_are_compared(result: tb.Result, reference: Grid) -> None:
    found, turned = result.compare("school", "s0", "s3"), result.compare("school", "s3", "s0")
    mean, sd, above = reference.difference(0, 3)
    assert abs(found.mean.value - mean) < FAR * found.mean.error
    assert abs(found.sd.value - sd) < FAR * found.sd.error
    assert abs(found.probability.value - above) < FAR * found.probability.error < 0.05
    assert found.ratio is not None
    np.testing.assert_allclose(turned.mean.value, -found.mean.value)
    np.testing.assert_allclose(turned.probability.value, 1 - found.probability.value)
    np.testing.assert_allclose(turned.upper.value, -found.lower.value)
    assert found.lower.value < found.median.value < found.upper.value


def test_another_fit_of_the_same_shape_compiles_nothing_to_compare(result: tb.Result) -> None:
    result.compare("school", "s0", "s3")
    programs = compiled(_apart)
    before = len(programs._ready)
    fitted(seed=1).compare("school", "s0", "s3")
    assert len(programs._ready) == before


def test_a_run_that_ended_early_says_that_effects_were_not_reached(result: tb.Result) -> None:
    ended = replace(result, effect_source=None, posterior=None, status=Status.max_seconds)
    with pytest.raises(InputError, match="a run that ended before it reached them"):
        ended.effects()
    with pytest.raises(InputError, match="a result without groups"):
        replace(ended, factors=(), encoding=None).effects()


def test_rows_are_compared_with_their_groups(result: tb.Result, reference: Grid) -> None:
    one, other = {"x": 1.0, "school": "s0"}, {"x": 0.0, "school": "s3"}
    found = result.compare(one, other)
    slope = reference.theta[:, 1]
    effects = [np.sum(reference.share(each) * reference.z, axis=1) * reference.theta[:, 2] for each in (0, 3)]
    mean = reference.weight @ (slope + effects[0] - effects[1])
    assert abs(found.mean.value - mean) < FAR * found.mean.error
    assert abs(found.mean.value - reference.weight @ slope) > FAR * found.mean.error
    same = result.compare({"x": 1.0, "school": "s0"}, {"x": 0.0, "school": "s0"})
    by_name = result["mean"].value["x"]
    assert abs(same.mean.value - by_name) < FAR * (same.mean.error + result["mean"].flat_error[1])
    assert same.sd.value < 0.5 * found.sd.value
    new = result.compare({"x": 0.0, "school": "one"}, {"x": 0.0, "school": "another"})
    spread = np.sqrt(2 * reference.weight @ reference.theta[:, 2] ** 2)
    assert abs(new.sd.value - spread) < FAR * new.sd.error
    assert abs(new.probability.value - 0.5) < 1e-6


@pytest.mark.parametrize(
    ("things", "message"),
    [
        (("school", "s0", "s99"), "a known group of 'school'; got 's99'"),
        (("school", "s0", "s0"), "two groups"),
        (("school", "s0", "s1", "hour"), "a known effect of 'school'; got 'hour'"),
        (("pupil", "s0", "s1"), "a column of categories"),
    ],
)
def test_what_cannot_be_compared(result: tb.Result, things: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        result.compare(*things)


def test_at_least_is_for_counts(result: tb.Result) -> None:
    with pytest.raises(InputError, match="at_least for counts"):
        result.predict(table_of(ASKED), at_least=2)


def test_every_school_has_rows() -> None:
    assert len(set(rows()["school"])) == SCHOOLS


def test_scales_stand_where_the_fit_has_them() -> None:
    """By the width of their priors, as the reading of a posterior has it, in the order of the leaves' names."""
    terms = (EffectTerm("school"), EffectTerm("year", levels=3))
    parts = (Part("real", (), (2,)), Part("half_normal", (3.0,), (1,)), Part("half_normal", (0.2,), (1,)))
    posterior: Any = SimpleNamespace(reading=SimpleNamespace(parts=parts))
    assert [term.scale for term in _with_scales(terms, posterior)] == [3.0, 0.2]


@pytest.mark.slow
def test_a_new_group_is_predicted_by_scales_of_any_prior() -> None:
    """With wide half-normal priors, and with one that was stated: the scale at the mode is about its posterior mean."""
    for asked in ({"group_scale": 20.0}, {"priors": {"sd(school)": tb.priors.half_student_t(3, 20)}}):
        result = tb.fit(FORMULA, rows(), tolerance=0.2, **asked)
        assert result.encoding is not None
        mixed = Mixed.of(result, Encoding.from_plain(result.encoding))
        assert result.anchor is not None
        scale = float(np.asarray(mixed.space.theta(result.anchor.mode)["scales0"])[0])
        mean, sd = (result[name].value["sd(Intercept|school)"] for name in ("mean", "sd"))
        assert abs(scale - mean) < 2 * sd
