"""Groups of a result: factors, effects that are parameters, shares of variance, and all of it from a file.

Posteriors by hand are normal and narrow, 0.02 about each scale, so that shares are those of the scales but for terms of
their square, 1e-3; the bounds leave room for those.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mixed_runs import MEANS, NOISE, OWN, RESPONSE, ROWS, SCHOOL_SD, SCHOOLS, YEAR_SD, YEARS, made_up_effects, mixed

import tallbayes as tb
from tallbayes.results.coefficients import least, own_parameters
from tallbayes.results.groups.partition import RESIDUAL

NEAR = 2e-3


def test_a_result_knows_its_factors() -> None:
    result = mixed()
    school, year = result.factors
    assert school.is_integrated
    assert not year.is_integrated
    assert school.spread == year.spread == ((1.0,),)
    assert (result.unit, result.num_rows, own_parameters(result)) == ("group", ROWS, len(OWN))
    assert least(own_parameters(result), 3) == 3
    assert [note.split()[1] for note in result.notes] == [str(SCHOOLS), str(len(YEARS))]
    assert replace(result, factors=()).unit == "row"


def test_effects_that_are_parameters_are_those_of_their_factor() -> None:
    result = mixed()
    found = result.effects("year")
    assert found.levels == YEARS
    assert found.mean[:, 0].tolist() == [result["mean"].value[f"Intercept|year[{year}]"] for year in YEARS]
    # A normal posterior: ends at 1.96 sds, to six of their standard errors.
    assert found.lower[:, 0] == pytest.approx(found.mean[:, 0] - 1.96 * 0.02, abs=6 * found.end_error.max())
    assert found.end_error.max() < 0.01
    with pytest.raises(tb.InputError, match="'school', 'year'"):
        result.effects("carrier")


def test_raw_means_are_in_the_units_of_the_table() -> None:
    mean, scale = RESPONSE
    assert mixed().effects("school").raw == pytest.approx(mean + scale * made_up_effects(SCHOOLS).raw)
    assert mixed().effects("year").raw == pytest.approx(mean + scale * np.linspace(-1, 1, len(YEARS)))


@pytest.mark.parametrize(
    ("family", "residual"),
    [("linear", 1.0), ("student_t", 2.0), ("logistic", np.pi**2 / 3), ("probit", 1.0)],
)
def test_shares_are_those_of_the_scales(family: str, residual: float) -> None:
    found = mixed(family).variance_partition()
    parts = np.array([MEANS[SCHOOL_SD] ** 2, MEANS[YEAR_SD] ** 2, residual])
    assert found.names == ("school", "year", RESIDUAL)
    assert found.values[:, 0] == pytest.approx(parts / parts.sum(), abs=NEAR)
    assert found.values[:, 0].sum() == pytest.approx(1.0, abs=1e-6)
    for each in found:
        assert each.lower.value < each.share.value < each.upper.value
        assert 0 < each.share.error < NEAR
    assert found["year"].share.value == found.values[1, 0]
    assert list(found.to_pandas()["of"]) == list(found.names)
    # Control: with the two scales in one another's place the bound is passed.
    assert abs(found.values[0, 0] - parts[1] / parts.sum()) > 10 * NEAR


def test_slopes_count_as_much_as_their_column_moves() -> None:
    """V = m11 sd1^2 + m22 sd2^2 + 2 m12 cor sd1 sd2, with m the mean of z z^T."""
    names = ["Intercept", "x", NOISE, "sd(Intercept|g)", "sd(x|g)", "cor(Intercept,x|g)"]
    from reports import encoding_of, made

    mean, sd = np.array([0.0, 1.0, 1.0, 2.0, 0.5, -0.4]), np.full(6, 0.005)
    result = made(names, mean, sd, family="linear", encoding=encoding_of(["x"], {}))
    factor = replace(mixed().factors[0], by="g", names=("Intercept", "x"), spread=((1.0, 3.0), (3.0, 11.0)))
    found = replace(result, factors=(factor,)).variance_partition()
    variance = 4.0 + 11.0 * 0.25 + 2 * 3.0 * -0.4 * 2.0 * 0.5
    assert found["g"].share.value == pytest.approx(variance / (variance + 1.0), abs=NEAR)


def test_what_has_no_partition_says_why() -> None:
    with pytest.raises(tb.InputError, match="variance of a count changes with its mean"):
        mixed("poisson").variance_partition()
    with pytest.raises(tb.InputError, match="without groups"):
        replace(mixed(), factors=(), effect_source=None).variance_partition()
    own = tuple(replace(each, spread=()) for each in mixed().factors)
    with pytest.raises(tb.InputError, match="only it knows"):
        replace(mixed(), factors=own).variance_partition()


def test_a_file_has_groups_effects_and_shares(tmp_path: Path) -> None:
    result = mixed()
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    assert loaded.factors == result.factors
    for by in ("school", "year"):
        assert str(loaded.effects(by)) == str(result.effects(by))
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
    result = mixed()
    assert result.to_pandas().attrs["groups"] == {"school": SCHOOLS, "year": len(YEARS)}
    tree = result.to_datatree(draws=10)
    assert dict(tree["effects_school"].sizes) == {"school": SCHOOLS, "effect": 1}
    assert tree["posterior"]["effects_year"].shape == (1, 10, len(YEARS), 1)
    assert list(tree["posterior"]["coefficient"].values) == ["Intercept", "x"]
    assert SCHOOL_SD in tree["posterior"]
