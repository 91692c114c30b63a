"""bambi models in place of their fit: bambi's names, its intercept, and effects by factor."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

bambi = pytest.importorskip("bambi", reason="THE bambi DOOR IS NOT TESTED: bambi is not installed")
pd = pytest.importorskip("pandas")

import tallbayes as tb  # noqa: E402
from tallbayes.errors import ModelError  # noqa: E402

# Of what bambi asks of pandas.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")
N = 80


@pytest.fixture(scope="module")
def table() -> Any:
    generator = np.random.default_rng(3)
    x = generator.normal(5.0, 1.0, N)
    kind = generator.choice(["a", "b", "c"], N)
    place = np.array([f"place {each % 8}" for each in range(N)])
    y = 2.0 + 0.5 * x + (kind == "b") + generator.normal(size=N)
    return pd.DataFrame({"x": x, "kind": kind, "place": place, "y": y})


def test_the_intercept_is_that_of_predictors_as_they_are(table: Any) -> None:
    source = bambi.Model("y ~ x + kind", table)
    model, data = tb.from_bambi(source)
    assert sorted(model.initial) == ["Intercept", "kind", "sigma", "x"]
    assert len(data["y"]) == N
    assert model.report is not None
    theta = {"Intercept": 1.0, "kind": np.array([0.3, -0.2]), "sigma": 1.0, "x": 0.5}
    with jax.enable_x64(True):
        told = model.report({name: np.asarray(value) for name, value in theta.items()}, None)
    kinds = np.array([np.mean(table["kind"] == each) for each in ("b", "c")])
    expected = 1.0 - 0.5 * table["x"].mean() - kinds @ [0.3, -0.2]
    assert float(told["Intercept"]) == pytest.approx(expected)
    # The control: the centred intercept is far from it.
    assert abs(expected - 1.0) > 1


def test_a_formula_of_sigma_is_taken(table: Any) -> None:
    """Its density of two rows, and both intercepts as bambi reports them."""
    model, data = tb.from_bambi(bambi.Model(bambi.Formula("y ~ x", "sigma ~ x"), table))
    theta = {"Intercept": 1.0, "sigma_Intercept": 0.2, "sigma_x": 0.3, "x": 0.5}
    assert sorted(model.initial) == sorted(theta)
    assert model.report is not None
    with jax.enable_x64(True):
        point = {name: np.asarray(value) for name, value in theta.items()}
        told = model.report(point, None)
        found = [
            float(model.log_likelihood(point, {name: np.asarray(each)[row] for name, each in data.items()}))
            for row in (0, 1)
        ]
    moved = table["x"] - table["x"].mean()
    scale = np.exp(0.2 + 0.3 * moved)
    wanted = -0.5 * ((table["y"] - 1.0 - 0.5 * moved) / scale) ** 2 - np.log(scale)
    assert found[1] - found[0] == pytest.approx(wanted[1] - wanted[0])
    assert float(told["Intercept"]) == pytest.approx(1.0 - 0.5 * table["x"].mean())
    assert float(told["sigma_Intercept"]) == pytest.approx(0.2 - 0.3 * table["x"].mean())


def test_effects_go_by_the_factor_and_its_levels(table: Any) -> None:
    model, data = tb.from_bambi(bambi.Model("y ~ x + (1|place)", table))
    assert model.groups is not None
    assert (model.groups.by, model.groups.names) == ("place", ("1|place",))
    assert model.groups.levels == tuple(f"place {each}" for each in range(8))
    assert sorted(model.initial) == ["1|place_sigma", "Intercept", "sigma", "x"]
    np.testing.assert_array_equal(data["place"], np.arange(N) % 8)
    assert model.notes[0].startswith("groups: '1|place_offset' of plate 'place' integrated out")


def test_offsets_are_left_out_where_effects_are_told(table: Any) -> None:
    model, _ = tb.from_bambi(bambi.Model("y ~ x + (1|place)", table), integrate=False)
    assert model.report is not None
    with jax.enable_x64(True):
        told = model.report(model.initial, None)
    assert set(told) == {"1|place", "1|place_sigma", "Intercept", "sigma", "x"}


def test_what_is_no_model_of_bambi_is_refused() -> None:
    with pytest.raises(ModelError, match=r"a bambi.Model; got str.*tb.from_pymc"):
        tb.from_bambi("y ~ x")
