"""What leaves for pandas, xarray and ArviZ is what the result says, under names that fit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from named_results import COEFFICIENTS, FORMULA, NUMBER, as_fitted, awkward_run, named, reshaped

import tallbayes as tb
from tallbayes.posterior.coordinates import Part
from tallbayes.results import export
from tallbayes.results.parts import Regression
from tallbayes.structure import Structure
from tallbayes.views import plots


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return awkward_run()


@pytest.fixture(scope="module")
def fitted(result: tb.Result) -> tb.Result:
    return as_fitted(result)


@pytest.fixture(scope="module")
def by_class(result: tb.Result) -> tb.Result:
    """As by a formula with three classes, the first of which is the reference."""
    one = named(Intercept=NUMBER, hour=NUMBER)
    regression = Regression("multinomial", heads=2, intercept=True, extras=0)
    return reshaped(result, named(mid=one, top=one), encoding=FORMULA, regression=regression)


def test_importing_imports_no_optional_package_and_no_jax() -> None:
    packages = "('jax', 'pandas', 'xarray', 'arviz', 'matplotlib')"
    program = (
        "import sys, tallbayes.results.export, tallbayes.views.plots, tallbayes.views.notebook.tables\n"
        f"assert not [each for each in {packages} if each in sys.modules]"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


# pandas


def test_the_frame_has_a_row_for_every_parameter_with_all_its_numbers(fitted: tb.Result) -> None:
    frame, rows = export.to_pandas(fitted), fitted.coefficients()
    assert list(frame.index[:4]) == ["Intercept", "hour", "a<b", "cost$ in $"]
    assert frame.index.name == "parameter"
    for name in ("mean", "sd", "median", "lower", "upper"):
        assert list(frame[name][:4]) == [getattr(row, name).value for row in rows]
        assert list(frame[f"{name}_error"][:4]) == [getattr(row, name).error for row in rows]
    assert list(frame["laplace_mean"][:4]) == [row.laplace_mean for row in rows]
    assert list(frame["laplace_sd"][:4]) == [row.laplace_sd for row in rows]
    assert frame.attrs["probability"] == 0.95
    narrow = export.to_pandas(fitted, probability=0.5)
    assert (narrow["upper"] < frame["upper"])[:4].all()
    assert (narrow["lower"] > frame["lower"])[:4].all()


def test_other_quantities_follow_with_their_expectations_alone(result: tb.Result) -> None:
    frame = export.to_pandas(result)
    assert list(frame.index) == ["[0]", "[1]", "[2]", "[3]", "odds.a<b[0]", "odds.a<b[1]", "quantity [0]"]
    others = frame.iloc[4:]
    assert list(others["mean"][:2]) == result["odds"].flat_value.tolist()
    assert list(others["mean_error"][:2]) == result["odds"].flat_error.tolist()
    assert others.drop(columns=["mean", "mean_error"]).isna().all(axis=None)


@pytest.mark.parametrize("lost", [True, False])
def test_a_frame_without_the_posterior_has_means_and_sds(result: tb.Result, lost: bool) -> None:
    """Either no paths were kept, or nobody can tell any more which parameters they mean."""
    posterior = replace(result.posterior, stored=None, live=None) if lost else None
    frame = export.to_pandas(replace(result, posterior=posterior))
    assert frame["mean"].notna().all()
    assert frame["sd"][:4].notna().all()
    assert frame[["median", "lower", "upper_error", "laplace_sd"]].isna().all(axis=None)


def test_a_frame_of_quantities_alone(result: tb.Result) -> None:
    frame = export.to_pandas(replace(result, posterior=None, estimates={"odds": result["odds"]}))
    assert list(frame.index) == ["odds.a<b[0]", "odds.a<b[1]"]


# xarray


@pytest.fixture(scope="module")
def xarray() -> Any:
    return pytest.importorskip("xarray", minversion="2024.10")


def test_draws_are_independent_ones_where_the_rows_are_there(result: tb.Result, xarray: Any) -> None:
    posterior = export.to_datatree(result, draws=100)["posterior"]
    found = result.draws(100)
    np.testing.assert_array_equal(posterior["coefficients"].to_numpy()[0], found.flat)
    assert set(posterior["path_level"].to_numpy()) == {len(result.levels) - 1}
    assert "independent draws (ends of paths" in posterior.attrs["note"]
    assert posterior.attrs["law_bias"] == found.bias > 0


def test_without_rows_draws_are_those_that_the_run_kept_with_their_levels(result: tb.Result, xarray: Any) -> None:
    tree = export.to_datatree(replace(result, path_source=None, fitted_source=None), draws=100)
    values, levels = result.posterior.draws(100)
    posterior = tree["posterior"]
    assert posterior["coefficients"].dims == ("chain", "draw", "coefficients_dim_0")
    np.testing.assert_array_equal(posterior["coefficients"].to_numpy()[0], values)
    np.testing.assert_array_equal(posterior["path_level"], levels)
    assert posterior["path_level"].dims == ("draw",)
    assert "path_level" not in posterior.indexes
    assert "bias of its own" in posterior.attrs["note"]
    assert posterior.attrs["sample_dims"] == ["chain", "draw"]


def test_the_other_groups_hold_what_the_result_says(result: tb.Result, xarray: Any) -> None:
    tree, frame = export.to_datatree(result, draws=10), export.to_pandas(result)
    assert list(tree.children) == ["posterior", "estimates", "quantities", "levels"]
    for name in frame.columns:
        np.testing.assert_array_equal(tree["estimates"][name], frame[name][:4])
    assert float(tree["estimates"]["mean"].sel(parameter="[2]")) == result["mean"].value[2]
    assert list(tree["quantities"]["quantity"].to_numpy()) == ["odds.a<b[0]", "odds.a<b[1]", "[0]"]
    np.testing.assert_array_equal(tree["quantities"]["bias_bound"][:2], result["odds"].flat_bias_bound)
    assert tree["levels"]["samples"].to_numpy().tolist() == [level.samples for level in result.levels]
    of_means = tree["levels"]["variance"].sel(component=["mean[0]", "mean[1]", "mean[2]", "mean[3]"])
    np.testing.assert_array_equal(of_means, [level.variance["mean"] for level in result.levels])


def test_attributes_tell_where_it_all_comes_from(fitted: tb.Result, xarray: Any) -> None:
    tree = export.to_datatree(fitted, draws=10)
    expected = {
        "inference_library": "tallbayes",
        "inference_library_version": fitted.settings["versions"]["tallbayes"],
        "status": "converged",
        "converged": 1,
        "tolerance": 0.5,
        "seed": 1,
        "num_data": 200,
        "evaluations": fitted.cost.evaluations,
        "seconds": fitted.cost.seconds,
        "formula": "late ~ hour + C(kind)",
        "family": "logistic",
    }
    assert {name: tree.attrs[name] for name in expected} == expected
    for group in tree.children.values():
        assert group.attrs["inference_library"] == "tallbayes"
        assert "created_at" in group.attrs


def test_coefficients_of_a_formula_have_their_names(fitted: tb.Result, xarray: Any) -> None:
    posterior = export.to_datatree(fitted, draws=10)["posterior"]
    assert list(posterior.data_vars) == ["coefficients"]
    assert list(posterior["coefficient"].to_numpy()) == list(COEFFICIENTS.keys)
    with_scale = replace(fitted, regression=Regression("linear", heads=1, intercept=True, extras=1))
    posterior = export.to_datatree(with_scale, draws=10)["posterior"]
    assert posterior["coefficients"].shape == (1, 10, 3)
    assert posterior["cost$ in $"].dims == ("chain", "draw")


def test_classes_have_an_axis_of_their_own(by_class: tb.Result, xarray: Any) -> None:
    posterior = export.to_datatree(by_class, draws=10)["posterior"]
    assert posterior["coefficients"].dims == ("chain", "draw", "outcome", "coefficient")
    values, _ = by_class.posterior.draws(10)
    found = posterior["coefficients"].sel(outcome="top", coefficient="hour")
    np.testing.assert_array_equal(found.to_numpy()[0], values[:, 3])


def test_constrained_parameters_are_in_their_own_terms(result: tb.Result, xarray: Any) -> None:
    structure = named(chance=NUMBER, scale=NUMBER, slopes=Structure.leaf((2,)))
    parts = (Part("interval", (0.0, 1.0), ()), Part("positive", (), ()), Part("real", (), (2,)))
    other = reshaped(result, structure, parts, regression=None)
    posterior = export.to_datatree(other)["posterior"]
    assert list(posterior.data_vars) == ["chance", "scale", "slopes"]
    assert posterior["slopes"].dims == ("chain", "draw", "slopes_dim_0")
    assert 0 < float(posterior["chance"].min()) < float(posterior["chance"].max()) < 1
    assert float(posterior["scale"].min()) > 0
    values, _ = result.posterior.draws()
    np.testing.assert_allclose(posterior["scale"].to_numpy()[0], np.exp(values[:, 1]))


PAIR, LIST = Structure.leaf((2,)), Structure.container("list", [(0, NUMBER), (1, NUMBER)])
SHAPES = {
    "an array": (Structure.leaf((2, 2)), {"theta": ("theta_dim_0", "theta_dim_1")}),
    "a ragged tuple": (
        Structure.container("tuple", [(0, PAIR), (1, NUMBER), (2, NUMBER)]),
        {"theta[0]": ("theta[0]_dim_0",), "theta[1]": (), "theta[2]": ()},
    ),
    "a dict of numbers": (named(a=NUMBER, b=NUMBER, c=PAIR), {"a": (), "b": (), "c": ("c_dim_0",)}),
    "alike children": (named(a=named(x=NUMBER, y=NUMBER), b=LIST), {"a": ("a_dim_0",), "b": ("b_dim_0",)}),
    "unlike children": (named(a=named(x=NUMBER, y=PAIR), b=NUMBER), {"a.x": (), "a.y": ("a.y_dim_0",), "b": ()}),
    "nothing in between": (named(a=Structure("none"), b=Structure.leaf((4,))), {"b": ("b_dim_0",)}),
    "names that are taken": (
        Structure.container("dict", [(name, NUMBER) for name in ("draw", "path_level", "a/b", "a|b")]),
        {"draw_": (), "path_level_": (), "a|b": (), "a|b_": ()},
    ),
    "a name like an axis": (named(a=PAIR, a_dim_0=PAIR), {"a": ("a_dim_0_",), "a_dim_0": ("a_dim_0_dim_0",)}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_structure_becomes_variables(result: tb.Result, xarray: Any, shape: str) -> None:
    structure, expected = SHAPES[shape]
    other = reshaped(result, structure, regression=None)
    posterior = export.to_datatree(other, draws=5)["posterior"]
    assert {name: array.dims[2:] for name, array in posterior.data_vars.items()} == expected
    together = [array.to_numpy().reshape(5, -1) for array in posterior.data_vars.values()]
    np.testing.assert_array_equal(np.concatenate(together, axis=1), other.posterior.draws(5)[0])


def test_without_paths_there_are_no_draws(result: tb.Result, xarray: Any) -> None:
    tree = export.to_datatree(replace(result, posterior=None))
    assert list(tree.children) == ["estimates", "quantities", "levels"]
    assert np.all(np.isnan(tree["estimates"]["lower"]))


@pytest.mark.parametrize("draws", [0, -1, 2.5, True, "many"])
def test_a_number_of_draws_that_is_none_is_refused(result: tb.Result, xarray: Any, draws: Any) -> None:
    with pytest.raises(tb.InputError, match="draws a whole number"):
        export.to_datatree(result, draws)


@pytest.mark.parametrize("engine", ["h5netcdf", "netCDF4"])
def test_a_tree_survives_netcdf(by_class: tb.Result, xarray: Any, tmp_path: Path, engine: str) -> None:
    """With settings that netCDF has no types for."""
    pytest.importorskip(engine)
    settings = by_class.settings | {"seed": 2**64 - 1, "tolerance": {"mean": 0.5, "sd": 1.0}, "flag": True}
    tree = export.to_datatree(replace(by_class, settings=settings), draws=20)
    tree.to_netcdf(tmp_path / "result.nc", engine=engine.lower())
    with xarray.open_datatree(tmp_path / "result.nc", engine=engine.lower()) as back:
        assert back.equals(tree)
        assert {name: back.attrs[name] for name in tree.attrs} == tree.attrs


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pandas", export.to_pandas),
        ("xarray", export.to_datatree),
        ("arviz", export.to_inferencedata),
        ("matplotlib.pyplot", plots.plot),
    ],
)
def test_a_missing_package_is_named(
    result: tb.Result, monkeypatch: pytest.MonkeyPatch, package: str, call: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tb.InputError, match=rf"{package.split('.')[0]}.* not installed\. Try: pip install"):
        call(result)


# ArviZ


@pytest.mark.filterwarnings("ignore")
def test_arviz_reads_what_is_made_for_it(by_class: tb.Result, xarray: Any) -> None:
    arviz = pytest.importorskip("arviz")
    old = int(arviz.__version__.split(".")[0]) < 1
    data = export.to_inferencedata(by_class, 50) if old else export.to_datatree(by_class, 50)
    rows = list(arviz.summary(data).index)
    classes = [(outcome, name) for outcome in ("mid", "top") for name in ("Intercept", "hour")]
    assert rows == [f"coefficients[{outcome}, {name}]" for outcome, name in classes]
    assert arviz.extract(data).sizes["sample"] == 50


def test_inference_data_has_the_same_groups(result: tb.Result, xarray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(__version__="0.23.4", InferenceData=lambda **given: given)
    monkeypatch.setitem(sys.modules, "arviz", old)
    given, tree = export.to_inferencedata(result, 10), export.to_datatree(result, 10)
    assert given.pop("attrs")["status"] == "converged"
    assert list(given) == list(tree.children)
    for name, group in given.items():
        assert group.equals(tree[name].to_dataset())


def test_arviz_one_is_told_to_take_the_tree(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(__version__="1.3.0"))
    with pytest.raises(tb.InputError, match=r"got ArviZ 1\.3\.0\. Try: result\.to_datatree\(\)"):
        export.to_inferencedata(result)
