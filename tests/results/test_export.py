"""What leaves for pandas, xarray, ArviZ, matplotlib and notebooks is what the result says, under names that fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.posterior.coordinates import Part, Reading
from tallbayes.posterior.prediction import Prediction
from tallbayes.results import export
from tallbayes.results.coefficients import Number
from tallbayes.results.comparisons import Comparison
from tallbayes.results.result import Regression
from tallbayes.structure import Structure
from tallbayes.views import notebook, plots
from tallbayes.views.report.effects import effects_of

NUMBER = Structure.leaf(())
REALS = (Part("real", (), (4,)),)
FORMULA = {"response": "late", "coding": {"right": "hour + C(kind)"}}


def named(**children: Structure) -> Structure:
    return Structure.container("dict", list(children.items()))


COEFFICIENTS = Structure.container("dict", [(name, NUMBER) for name in ("Intercept", "hour", "a<b", "cost$ in $")])


@pytest.fixture(scope="module")
def result() -> tb.Result:
    """Four slopes, and quantities whose names need care: one is called like a parameter."""
    quantities = {"mean": "mean", "sd": "sd", "odds": lambda theta: {"a<b": theta[:2] ** 2}, "[0]": lambda theta: 1.0}
    rows = logistic_rows(200, (0.8, -0.2, 0.3, 0.1))
    return tb.estimate(tb.families.logistic(), rows, quantities, tolerance=0.5, seed=1)


def reshaped(result: tb.Result, structure: Structure, parts: Any = REALS, **changes: Any) -> tb.Result:
    """The same numbers as parameters of another model, as if loaded from a file."""
    estimates = {
        name: replace(each, structure=structure) if name in ("mean", "sd") else each
        for name, each in result.estimates.items()
    }
    posterior = replace(result.posterior, stored=Reading(structure, parts), live=None)
    return replace(result, estimates=estimates, posterior=posterior, **changes)


@pytest.fixture(scope="module")
def fitted(result: tb.Result) -> tb.Result:
    """As by a formula."""
    return reshaped(result, COEFFICIENTS, encoding=FORMULA)


@pytest.fixture(scope="module")
def by_class(result: tb.Result) -> tb.Result:
    """As by a formula with three classes, the first of which is the reference."""
    one = named(Intercept=NUMBER, hour=NUMBER)
    regression = Regression("multinomial", heads=2, intercept=True, extras=0)
    return reshaped(result, named(mid=one, top=one), encoding=FORMULA, regression=regression)


def test_importing_imports_no_optional_package_and_no_jax() -> None:
    packages = "('jax', 'pandas', 'xarray', 'arviz', 'matplotlib')"
    program = (
        "import sys, tallbayes.results.export, tallbayes.views.plots, tallbayes.views.notebook\n"
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


def test_draws_are_those_of_the_posterior_with_their_levels(result: tb.Result, xarray: Any) -> None:
    tree = export.to_datatree(result, draws=100)
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


# matplotlib


@pytest.fixture
def pyplot() -> Iterator[Any]:
    """Without a display, and without a figure left open."""
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def labels_of(ax: Any) -> list[str]:
    ax.figure.canvas.draw()
    return [label.get_text() for label in ax.get_yticklabels()]


def test_a_plot_shows_ratios_of_slopes_where_the_family_has_them(fitted: tb.Result, pyplot: Any) -> None:
    ax = plots.plot(fitted)
    assert labels_of(ax) == ["hour", "a<b", "cost$ in $"]
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "odds ratio"
    intervals = ax.collections[0].get_segments()
    expected = [(np.exp(each.lower.value), np.exp(each.upper.value)) for each in fitted.coefficients()[1:]]
    np.testing.assert_allclose([segment[:, 0] for segment in intervals], expected)
    assert pyplot.get_fignums() == [ax.figure.number]
    assert pyplot.gcf() is ax.figure


def test_a_plot_of_coefficients_shows_errors_and_laplace(fitted: tb.Result, pyplot: Any) -> None:
    """The first two of three, in the caller's own axes."""
    figure, mine = pyplot.subplots()
    ax = plots.plot(fitted, ax=mine, ratios=False, most=2)
    assert ax is mine
    assert pyplot.get_fignums() == [figure.number]
    assert ax.get_xlabel() == "coefficient (the first 2 of 3)"
    whiskers, laplace = (ax.collections[place].get_segments() for place in (1, 2))
    _, hour, other, _ = fitted.coefficients()
    ends = [(n.value - n.error, n.value + n.error) for each in (hour, other) for n in (each.lower, each.upper)]
    np.testing.assert_allclose([segment[:, 0] for segment in whiskers], ends)
    np.testing.assert_allclose(laplace[0][:, 0].mean(), hour.laplace_mean)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["95% interval", "error of its ends", "Laplace's approximation"]


def test_a_plot_without_the_posterior_is_of_means_and_sds(fitted: tb.Result, pyplot: Any) -> None:
    ax = plots.plot(replace(fitted, posterior=None), ratios=False)
    segments = ax.collections[0].get_segments()
    mean, sd = (fitted[name].flat_value[1] for name in ("mean", "sd"))
    np.testing.assert_allclose(segments[0][:, 0], [mean - 1.96 * sd, mean + 1.96 * sd], atol=1e-4 * sd)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean ± 1.96 sd", "error of its ends"]


def test_a_plot_and_a_report_state_the_same_error_of_an_end(fitted: tb.Result, pyplot: Any) -> None:
    """Without the posterior: that of the mean and 1.96 times that of the sd, since both come of the same paths."""
    bare = replace(fitted, posterior=None, encoding=None)
    whiskers = plots.plot(bare, ratios=False).collections[1].get_segments()
    effects = [each for each in effects_of(bare).all if not each.term.is_intercept]
    stated = [(end.value - end.error, end.value + end.error) for each in effects for end in (each.lower, each.upper)]
    np.testing.assert_allclose([segment[:, 0] for segment in whiskers], stated)
    error = fitted["mean"].flat_error[1] + 1.959964 * fitted["sd"].flat_error[1]
    assert effects[0].upper.error == pytest.approx(error, rel=1e-6)


def test_a_plot_of_an_intercept_alone_shows_it(result: tb.Result, pyplot: Any) -> None:
    alone = reshaped(result, named(intercept=Structure.leaf((4,))))
    assert labels_of(plots.plot(alone)) == [f"intercept[{place}]" for place in range(4)]


def test_a_plot_bears_numbers_that_are_not_known(result: tb.Result, pyplot: Any) -> None:
    broken = replace(result["mean"], flat_value=np.array([1.0, np.nan, 1e4, 0.0]), flat_bias_bound=np.full(4, np.inf))
    ax = plots.plot(replace(result, posterior=None, estimates={"mean": broken}))
    assert len(labels_of(ax)) == 4


def test_what_cannot_be_plotted_is_refused(result: tb.Result, pyplot: Any) -> None:
    with pytest.raises(tb.InputError, match="logs of ratios"):
        plots.plot(replace(result, regression=None), ratios=True)
    with pytest.raises(tb.InputError, match="most at least 1"):
        plots.plot(result, most=0)
    with pytest.raises(tb.InputError, match="means and sds"):
        plots.plot(replace(result, posterior=None, estimates={"odds": result["odds"]}))
    assert pyplot.get_fignums() == []


# notebooks


class Reader(HTMLParser):
    """Cells of all tables, row by row; every tag must close, and nothing may run or paint."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert "background" not in text

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {
            "div",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "span",
            "b",
            "br",
            "details",
            "summary",
            "ul",
            "li",
        }
        assert {name for name, _ in attrs} <= {"style", "class"}
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.rows[-1][-1] += data


def test_the_html_has_every_coefficient_with_its_errors(fitted: tb.Result) -> None:
    text = notebook.html(fitted)
    rows = Reader(text).rows
    assert rows[0] == ["coefficient", "mean", "sd", "2.5%", "97.5%"]
    assert [row[0] for row in rows[1:5]] == list(COEFFICIENTS.keys)
    assert "a<b" not in text
    for row, known in zip(rows[1:5], fitted.coefficients(), strict=True):
        for cell, number in zip(row[1:], (known.mean, known.sd, known.lower, known.upper), strict=True):
            value, error = (float(part) for part in cell.split("±"))
            assert abs(value - number.value) <= 0.1 * number.error
            assert error == pytest.approx(number.error, rel=0.06)
    assert [row[0] for row in rows[5:]] == ["quantity", "odds.a<b[0]", "odds.a<b[1]", "[0]"]
    assert "late ~ hour + C(kind)</b> · logistic · 200 rows" in text
    assert str(fitted.status) in text
    assert f"{fitted.cost.evaluations:,} row gradients" in text


def test_the_html_says_what_failed(result: tb.Result) -> None:
    strict = replace(result["mean"], flat_tolerance=np.array([1.0, 0.0, np.nan, 1.0]))
    notes = ("<script>alert(1)</script>",)
    failed = replace(result, estimates={"mean": strict}, status=tb.Status.max_seconds, notes=notes)
    text = notebook.html(failed)
    assert [row[-1] for row in Reader(text).rows[1:]] == ["", "not met", "not met", ""]
    assert f"<b>{tb.Status.max_seconds}</b>" in text


def test_the_html_of_little(result: tb.Result) -> None:
    """No paths; no parameters; a function of the user's own that is called mean; nothing at all."""
    assert Reader(notebook.html(replace(result, posterior=None))).rows[0] == ["coefficient", "mean", "sd"]
    only = replace(result, posterior=None, estimates={"odds": result["odds"]})
    assert Reader(notebook.html(only)).rows[0] == ["quantity", "expectation"]
    own = replace(result["odds"], name="mean")
    rows = Reader(notebook.html(replace(result, estimates={"mean": own}))).rows
    assert [row[0] for row in rows[-2:]] == ["mean.a<b[0]", "mean.a<b[1]"]
    assert Reader(notebook.html(replace(result, posterior=None, estimates={}))).rows == []


def test_the_html_leaves_out_what_would_take_long(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST_WORK", 100)
    monkeypatch.setattr(notebook, "MAX_ROWS", 3)
    text = notebook.html(result)
    assert Reader(text).rows[0] == ["coefficient", "mean", "sd"]
    assert "... and 1 more" in text
    other = reshaped(result, Structure.leaf((4,)), (Part("ordered", (), (4,)),))
    monkeypatch.setattr(notebook, "MOST_WORK", 10**9)
    assert Reader(notebook.html(other)).rows[0] == ["coefficient", "mean", "sd"]


def test_the_html_of_parts(result: tb.Result) -> None:
    rows = Reader(notebook.estimate_html(result["odds"])).rows
    assert [row[0] for row in rows] == ["odds", "a<b[0]", "a<b[1]"]
    assert len(rows[1]) == 5
    numbers = np.linspace(0.1, 0.9, 100)
    rows = Reader(notebook.prediction_html(Prediction(*[numbers] * 6))).rows
    assert rows[0] == ["row", "prediction", "sd", "error", "sd_error"]
    assert len(rows) == notebook.MAX_ROWS + 1
    number = Number(0.5, 0.01)
    compared = Comparison("a<b", "c", number, number, number, number, number, number, "odds ratio")
    text = notebook.comparison_html(compared)
    assert [row[0] for row in Reader(text).rows] == ["", "a<b - c", "odds ratio"]
    assert "P(a&lt;b &gt; c) = 0.500" in text
