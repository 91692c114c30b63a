"""Groups of a result: factors, effects that are parameters, shares of variance, and all of it from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mixed_runs import SCHOOLS, YEARS, fitted_schools, made_up_effects, school_rows

import tallbayes as tb
from tallbayes.results.coefficients import own_parameters
from tallbayes.results.partition import RESIDUAL


def test_a_result_knows_its_factors() -> None:
    result, rows = fitted_schools(), school_rows()
    school, year = result.factors
    assert (school.by, school.groups, school.is_integrated, school.spread) == ("school", SCHOOLS, True, ((1.0,),))
    assert (year.by, year.groups, year.is_integrated) == ("year", YEARS, False)
    assert (result.unit, result.num_rows, result.cost.num_data) == ("group", len(rows["y"]), SCHOOLS)
    names = list(result["mean"].value)
    assert own_parameters(result) == year.first == names.index("Intercept|year[y0]")
    assert not any("[" in name for name in names[: year.first])
    assert sum(note.startswith("groups: ") for note in result.notes) == 2


def test_effects_that_are_parameters_are_those_of_their_factor() -> None:
    result, rows = fitted_schools(), school_rows()
    found = result.effects("year")
    for place, level in enumerate(found.levels):
        own = result["mean"].value[f"Intercept|year[{level}]"]
        assert found.mean[place, 0] == own
        mine = np.array(rows["year"]) == level
        assert found.raw[place] == pytest.approx(rows["y"][mine].mean())
        assert found.counts[place] == mine.sum()
    assert np.all(found.lower < found.mean) & np.all(found.mean < found.upper)
    assert np.all((found.end_error > 0) & (found.end_error < 1.5 * found.sd))


def test_raw_means_are_in_the_units_of_the_table() -> None:
    found, rows = fitted_schools().effects("school"), school_rows()
    means = [rows["y"][np.array(rows["school"]) == level].mean() for level in found.levels]
    assert found.raw == pytest.approx(means, rel=1e-5)


def test_shares_are_those_of_the_scales() -> None:
    """Against the same function written out; control: the shares of two factors are not one another's."""
    result = fitted_schools()
    assert result.posterior is not None
    found = result.variance_partition()
    assert found.names == ("school", "year", RESIDUAL)
    assert found.values[:, 0].sum() == pytest.approx(1.0, abs=1e-9)

    def school(theta: dict[str, float]) -> float:
        own, other = theta["sd(Intercept|school)"] ** 2, theta["sd(Intercept|year)"] ** 2
        return own / (own + other + theta["noise_scale"] ** 2)

    assert found["school"].share.value == pytest.approx(result.posterior.expectation(school).value, abs=1e-9)
    sds = [result["mean"].value[name] for name in ("sd(Intercept|school)", "sd(Intercept|year)", "noise_scale")]
    rough = np.square(sds) / np.sum(np.square(sds))
    assert found.values[:, 0] == pytest.approx(rough, abs=0.12)
    assert np.argmax(found.values[:, 0]) == np.argmax(rough)
    for each in found:
        assert 0 < each.lower.value < each.share.value < each.upper.value < 1
        assert 0 < each.share.error < 0.1
    assert list(found.to_pandas()["of"]) == list(found.names)


def test_counts_have_no_partition() -> None:
    result = fitted_schools()
    assert result.regression is not None
    counts = replace(result, regression=replace(result.regression, family="poisson"), effect_source=None)
    with pytest.raises(tb.InputError, match="variance of a count changes with its mean"):
        counts.variance_partition()
    with pytest.raises(tb.InputError, match="without groups"):
        replace(result, factors=(), effect_source=None).variance_partition()


@pytest.mark.parametrize(("family", "residual"), [("logistic", np.pi**2 / 3), ("probit", 1.0)])
def test_residuals_of_binary_responses_are_those_of_their_law(family: str, residual: float) -> None:
    result = fitted_schools()
    assert result.regression is not None
    other = replace(result, regression=replace(result.regression, family=family), effect_source=None)
    found = other.variance_partition()
    school, year, rest = found.values[:, 0]
    sds = [result["mean"].value[name] for name in ("sd(Intercept|school)", "sd(Intercept|year)")]
    total = np.sum(np.square(sds)) + residual
    assert (school, year, rest) == pytest.approx((sds[0] ** 2 / total, sds[1] ** 2 / total, residual / total), abs=0.12)


def test_a_file_has_groups_effects_and_shares(tmp_path: Path) -> None:
    result = fitted_schools()
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    assert loaded.factors == result.factors
    assert str(loaded.effects("year")) == str(result.effects("year"))
    assert str(loaded.variance_partition()) == str(result.variance_partition())
    assert loaded.summary() == result.summary()


def test_what_is_kept_of_the_variance_between_groups() -> None:
    """In a normal model with known scales it is n / (n + noise / variance between groups)."""
    found = made_up_effects(20_000)
    exact = 0.64 / (0.64 + 5 / found.counts)
    assert found.kept[:, 0] == pytest.approx(exact, abs=0.05)
    value, error = found.usual_kept()
    assert value == np.median(found.kept)
    assert 0 < error < 0.02


def test_effects_are_written_to_files(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    found = made_up_effects(1000)
    assert found.write(tmp_path / "effects.csv") == found.write(tmp_path / "effects.parquet") == 1000
    assert (tmp_path / "effects.csv").read_text().count("\n") == 1001
    assert parquet.read_table(tmp_path / "effects.parquet")["mean"].to_numpy() == pytest.approx(found.mean[:, 0])
    with pytest.raises(tb.InputError, match="ending in"):
        found.write(tmp_path / "effects.txt")


def test_frames_and_trees_know_of_groups() -> None:
    result = fitted_schools()
    assert result.to_pandas().attrs["groups"] == {"school": SCHOOLS, "year": YEARS}
    tree = result.to_datatree(draws=10)
    assert tree["effects_school"].sizes == {"school": SCHOOLS, "effect": 1}
    assert tree["posterior"]["effects_year"].shape == (1, 10, YEARS, 1)
    assert list(tree["posterior"]["coefficient"].values) == ["Intercept", "x"]
    assert "sd(Intercept|school)" in tree["posterior"]
