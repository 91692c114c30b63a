"""PyMC models, unchanged: the log density, its parts, what is integrated out and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

pm = pytest.importorskip("pymc", reason="THE PyMC DOOR IS NOT TESTED: pymc is not installed")

import pymc_models as models  # noqa: E402
import pytensor.tensor as pt  # noqa: E402
from pymc_models import COUNT, GROUP, MODELS, G, N, X, Y  # noqa: E402

import tallbayes as tb  # noqa: E402
from tallbayes.doors.plates.groups import moved_by  # noqa: E402
from tallbayes.doors.pymc import model as adapter  # noqa: E402
from tallbayes.doors.pymc.graphs import in_jax  # noqa: E402
from tallbayes.doors.pymc.model import from_pymc  # noqa: E402
from tallbayes.doors.pymc.special import scaled_erfc  # noqa: E402
from tallbayes.errors import InputError, ModelError  # noqa: E402


def moved(model: tb.Model) -> dict[str, Any]:
    return moved_by(model, model.initial, 0.3, np.random.default_rng(1))


def total(model: tb.Model, data: dict[str, Any], theta: dict[str, Any]) -> float:
    both = jax.jit(
        lambda theta, rows: model.log_prior(theta) + jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(theta, rows))
    )
    return float(both(theta, data))


SLOW = {"bounded", "correlated", "cut_off", "grades", "outcomes"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in MODELS]
)
def test_the_log_density_is_that_of_pymc(name: str) -> None:
    source = MODELS[name]()
    model, data = from_pymc(source, integrate=False)
    assert sorted(model.initial) == sorted(rv.name for rv in source.free_RVs)
    assert all(len(column) == N and np.all(np.isfinite(column)) for column in data.values())
    with jax.enable_x64(True):
        theta = moved(model)
        theirs = models.log_density(source)(theta)
        assert total(model, data, theta) == pytest.approx(theirs, rel=1e-9)
        # The control: a single row is not beneath notice.
        last = jax.tree.map(lambda leaf: leaf[-1], data)
        assert abs(float(jax.jit(model.log_likelihood)(theta, last))) > 1e-6 * abs(theirs)


def test_a_row_is_differentiated_twice_in_either_precision() -> None:
    model, data = from_pymc(models.counts())
    with jax.enable_x64(True):
        theta, found = moved(model), {}
        for dtype, whole in ((jnp.float32, jnp.int32), (jnp.float64, jnp.int64)):
            kinds = {"f": dtype, "i": whole, "b": jnp.bool_}
            cast = {name: jnp.asarray(value, dtype) for name, value in theta.items()}
            own = {name: jnp.asarray(column[7], kinds[column.dtype.kind]) for name, column in data.items()}
            value, gradient = jax.jit(jax.value_and_grad(model.log_likelihood))(cast, own)
            assert value.dtype == dtype
            found[dtype] = jax.tree.leaves((value, gradient, jax.jit(jax.hessian(model.log_likelihood))(cast, own)))
    for single, double in zip(*found.values(), strict=True):
        np.testing.assert_allclose(single, double, rtol=2e-3, atol=2e-3)


def test_a_row_and_the_prior_look_at_no_other_row() -> None:
    model, data = from_pymc(models.linear())
    row = {name: column[0] for name, column in data.items()}
    with jax.enable_x64(True):
        for function, given in ((model.log_prior, (model.initial,)), (model.log_likelihood, (model.initial, row))):
            assert f"[{N}" not in jax.jit(jax.grad(function)).lower(*given).compile().as_text()


class Case(NamedTuple):
    """`sites` are integrated, with the shape of an entry; `value` makes the site of what is shown."""

    sites: dict[str, tuple[int, ...]]
    by: str
    shown: tuple[str, ...]
    of: Callable[[dict[str, Any], Any], dict[str, Any]]


GROUPS = {
    "centred": Case({"effect": ()}, "school", ("effect",), lambda theta, b: {"effect": b[:, 0]}),
    "not_centred": Case(
        {"z": (), "w": ()}, "z", ("effect", "w"), lambda t, b: {"z": (b[:, 0] - 0.3) / t["spread"], "w": b[:, 1]}
    ),
    "by_level": Case(
        {"effect": ()},
        "group",
        ("effect - its mean",),
        lambda theta, b: {"effect": b[:, 0] + theta["slope"] * models.SIZE},
    ),
    "schools": Case({"hidden": ()}, "hidden", ("hidden",), lambda theta, b: {"hidden": b[:, 0]}),
    "correlated": Case({"effect": (2,)}, "group", ("effect[0]", "effect[1]"), lambda theta, b: {"effect": b}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("correlated", "not_centred"))) for name in GROUPS]
)
def test_the_density_given_all_effects_is_that_of_pymc(name: str) -> None:
    """log p(theta) + sum_g log p(b_g | theta) + sum_i l_i(theta, b_g(i)) = log p(theta, z, y) + log |dz / db|."""
    case, source = GROUPS[name], MODELS[name]()
    model, data = from_pymc(source)
    groups = model.groups
    assert groups is not None
    assert (groups.by, groups.names) == (case.by, case.shown)
    assert not set(case.sites) & set(model.initial)
    assert "integrated out" in model.notes[0]
    codes = data[case.by]
    np.testing.assert_array_equal(codes, np.arange(N) if name == "schools" else GROUP)
    rows = {column: array for column, array in data.items() if column != case.by}
    count = codes.max() + 1

    def ours(theta: Any, b: Any, codes: Any) -> tuple[Any, Any, Any]:
        effects = jax.vmap(groups.vector)(b)
        density = model.log_prior(theta) + jnp.sum(jax.vmap(groups.log_density, (None, 0))(theta, effects))
        density += jnp.sum(jax.vmap(model.log_likelihood, (None, 0, 0))(theta, effects[codes], rows))

        def values(b: Any) -> Any:
            shown = jax.vmap(lambda each: jnp.ravel(groups.shown(theta, groups.vector(each))))(b)
            return jnp.concatenate([jnp.reshape(each, (count, -1)) for each in case.of(theta, shown).values()], 1)

        # Effects of different groups are apart, so the volume is a product over groups.
        columns = [jax.jvp(values, (b,), (jnp.zeros_like(b).at[:, k].set(1.0),))[1] for k in range(groups.size)]
        volume = jnp.sum(jnp.linalg.slogdet(jnp.stack(columns, -1))[1])
        shown = jax.vmap(lambda each: jnp.ravel(groups.shown(theta, groups.vector(each))))(b)
        return density, volume, case.of(theta, shown)

    with jax.enable_x64(True):
        theta, b = moved(model), np.random.default_rng(2).normal(0.0, 0.7, (count, groups.size))
        found = jax.jit(ours)
        density, volume, sites = found(theta, b, codes)
        theirs = models.log_density(source)({**theta, **sites}) + float(volume)
        assert float(density) == pytest.approx(theirs, rel=1e-9)
        # The control: with the rows of two groups exchanged it is another density.
        others = np.where(codes == 0, 1, np.where(codes == 1, 0, codes))
        assert float(found(theta, b, others)[0]) != pytest.approx(theirs, rel=1e-6)


def test_what_is_not_recognised_is_explicit_and_told_why() -> None:
    model, _ = from_pymc(models.walking())
    assert model.groups is None
    assert "'path' of plate 'path' not integrated, because" in model.notes[0]


def test_coefficients_with_a_fixed_prior_are_parameters_without_a_note() -> None:
    with pm.Model() as fixed:
        level = pm.Normal("level", 0, 2, shape=G)
        pm.Bernoulli("y", logit_p=level[GROUP], observed=COUNT > 1)
    model, _ = from_pymc(fixed)
    assert model.groups is None
    assert model.notes == ()


def test_groups_and_deterministics_go_by_the_models_own_names() -> None:
    model, _ = from_pymc(models.centred())
    assert model.groups is not None
    assert model.groups.levels == tuple(f"school {each}" for each in range(G))
    explicit, _ = from_pymc(models.linear())
    assert explicit.report is not None
    with jax.enable_x64(True):
        told = explicit.report({**explicit.initial, "scale": jnp.asarray(2.0)}, None)
    assert set(told) == {"slope", "intercept", "scale", "precision"}
    assert float(told["precision"]) == 0.25


def test_a_space_that_pymc_alone_knows_has_its_map_and_its_volume() -> None:
    def build() -> None:
        tail = pm.TruncatedNormal("tail", 3, 1, lower=2.5)
        ends = pm.Uniform("ends", [-9.0, -8.0], 9.0, shape=2)
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        observe(tail + ends.sum() + chol[0, 0])

    model, _ = from_pymc(with_rows(build)())
    with jax.enable_x64(True):
        for name in ("tail", "ends", "chol"):
            space = model.constraints[name]
            free = np.ravel(np.asarray(space.unconstrain(model.initial[name]))) + 0.3
            shape = space.free_shape(np.shape(model.initial[name]))
            value = space.constrain(jnp.reshape(free, shape))
            np.testing.assert_allclose(np.ravel(space.unconstrain(value)), free, rtol=1e-9)
            slope = jax.jacfwd(lambda u, s=space, n=shape: jnp.ravel(s.constrain(jnp.reshape(u, n))))(jnp.asarray(free))
            volume = np.linalg.slogdet(slope)[1]
            assert float(space.log_jacobian(jnp.reshape(free, shape))) == pytest.approx(volume, rel=1e-9)
            assert abs(volume) > 1e-3


def test_the_scaled_tail_is_that_of_scipy_with_finite_slopes() -> None:
    x = np.concatenate([np.linspace(-8.9, 8, 60), [3.999, 4.0, 4.001, 12.0, 60.0, 1e4]])
    free = pt.vector("u", dtype="float64", shape=x.shape)
    tail = in_jax({"u": free}, [scaled_erfc(free)], {})
    with jax.enable_x64(True):
        np.testing.assert_allclose(tail({"u": x})[0], scipy.special.erfcx(x), rtol=1e-12)
        wide = np.concatenate([[-300.0, -9.1], x[:-2]])
        free = pt.vector("u", dtype="float64", shape=wide.shape)
        slopes = jax.grad(lambda u: jnp.sum(in_jax({"u": free}, [scaled_erfc(free)], {})({"u": u})[0][2:]))(wide)
    assert np.all(np.isfinite(slopes))


def test_outside_of_a_distributions_parameters_the_density_is_zero() -> None:
    """Three coins that all came up heads, p = 2 share: without the check a share of 0.8 would be likelier than 1/2."""

    def build() -> None:
        share = pm.Uniform("share")
        pm.Bernoulli("y", p=2 * share * np.array([0.5, 1.0, 1.0]), observed=np.ones(3))

    model, data = from_pymc(with_rows(build)())
    rows = [{name: column[each] for name, column in data.items()} for each in range(3)]
    with jax.enable_x64(True):
        found = [float(model.log_likelihood({"share": jnp.asarray(0.8)}, row)) for row in rows]
        assert found == [pytest.approx(np.log(0.8)), -np.inf, -np.inf]
        assert float(model.log_likelihood({"share": jnp.asarray(0.4)}, rows[1])) == pytest.approx(np.log(0.8))


def with_rows(build: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        with pm.Model() as model:
            build()
        return model

    return made


def observe(mean: Any) -> None:
    pm.Normal("y", mean, 1, observed=Y)


def two_lengths() -> None:
    mean = pm.Normal("mean")
    observe(mean)
    pm.Normal("x", mean, 1, observed=X[:9, 0])


def process() -> None:
    kernel = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls"))
    pm.gp.Marginal(cov_func=kernel).marginal_likelihood("y", X=X[:, :1], y=Y, sigma=1.0)


def mixed_rows() -> None:
    observe(pm.Normal("mean") * pt.concatenate([np.zeros(1), pm.Normal("slope") * Y[:-1]]))


def by_index(order: np.ndarray) -> Callable[[], None]:
    """Each row's entry of a table that rows themselves have made."""

    def build() -> None:
        a, b = pm.Normal("a"), pm.Normal("b")
        table = pt.stack([a + X[:, 0], b * X[:, 1]], axis=1)
        pm.Normal("y", table[order, GROUP % 2], 1, observed=Y)

    return build


def test_a_row_that_reads_its_own_entry_by_number_is_taken() -> None:
    source = with_rows(by_index(np.arange(N)))()
    model, data = from_pymc(source)
    with jax.enable_x64(True):
        theta = {"a": np.asarray(0.3), "b": np.asarray(-0.7)}
        assert total(model, data, theta) == pytest.approx(models.log_density(source)(theta), rel=1e-9)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no model": (lambda: 3, "a pm.Model; got int"),
    "nothing observed": (with_rows(lambda: pm.Normal("mean")), "observed variables; got .*'mean'.*observed="),
    "nothing free": (with_rows(lambda: observe(0.0)), "free variables to infer"),
    "discrete": (with_rows(lambda: observe(pm.Bernoulli("part", 0.5))), "continuous.*'part'.*pm.Mixture"),
    "improper": (with_rows(lambda: observe(pm.Flat("mean"))), "proper priors; got Flat at 'mean'"),
    "a circle": (with_rows(lambda: observe(pm.VonMises("angle", 0, 1))), "bijector.*'angle'"),
    "bounds that move": (
        with_rows(lambda: observe(pm.Uniform("mean", 0, pm.HalfNormal("top")))),
        "fixed bounds.*'mean'.*another variable",
    ),
    "two lengths": (with_rows(two_lengths), r"as many rows each; got 'x' of 9, 'y' of 60.*rows=\['y'\]"),
    "a process": (with_rows(process), "density for each row.*'y' of shape.*walk or a process"),
    "autoregression": (
        with_rows(lambda: pm.AR("y", [pm.Normal("rate"), 0.1], sigma=1, init_dist=pm.Normal.dist(0, 1), observed=Y)),
        "density for each row",
    ),
    "a row that reads another": (
        with_rows(by_index(np.where(np.arange(N) == 57, 56, np.arange(N)))),
        "single rows; got 'y', where a row reads another",
    ),
    "rows after one another": (with_rows(mixed_rows), "single rows; got 'y', where"),
}


@pytest.mark.parametrize(("build", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_model_without_rows_is_refused_with_the_reason(build: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as refusal:
        from_pymc(build())
    assert str(refusal.value).startswith("expected ")
    assert "Try: " in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_response_with_gaps_is_refused() -> None:
    gaps = np.where(np.arange(N) == 3, np.nan, Y)
    with pytest.warns(Warning, match="missing values"), pm.Model() as model:
        pm.Normal("y", pm.Normal("mean"), 1, observed=gaps)
    with pytest.raises(ModelError, match=r"without gaps.*'y_unobserved'.*leave out"):
        from_pymc(model)


def test_rows_are_named_where_lengths_differ() -> None:
    model, data = from_pymc(with_rows(two_lengths)(), rows=["y"])
    assert len(data["y"]) == N
    with jax.enable_x64(True):
        theta = {"mean": np.asarray(0.3)}
        assert total(model, data, theta) == pytest.approx(models.log_density(with_rows(two_lengths)())(theta))
    with pytest.raises(ModelError, match=r"rows= to name some of the observed \['x', 'y'\]"):
        from_pymc(with_rows(two_lengths)(), rows="y")


def test_only_the_trial_on_a_few_rows_stops_terms_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: rows read beside their own are seen."""
    right = adapter.read_terms

    def wrong(*each: Any) -> Any:
        terms = right(*each)
        column = terms.rows.graph.constants[terms.rows.graph.names.index("y")]
        column[:] = np.roll(column, 1)
        return terms

    monkeypatch.setattr(adapter, "read_terms", wrong)
    with pytest.raises(ModelError, match="those of the model"):
        from_pymc(with_rows(lambda: observe(pm.Normal("mean")))())


def test_an_estimate_is_that_of_the_conjugate_posterior() -> None:
    """y ~ N(m, 1), m ~ N(0, 1), within five errors: less than one false alarm in a million a number; exp(m) too.

    A Gaussian is known without error, but for the rounding of rows to float32.
    """

    def build() -> None:
        mean = pm.Normal("mean", 0, 1)
        pm.Deterministic("power", pt.exp(mean))
        pm.Normal("y", mean, 1, observed=COUNT)

    model, data = tb.from_pymc(with_rows(build)())
    result = tb.estimate(model, data, tolerance=0.05, seed=2)
    variance = 1 / (N + 1)
    power = np.exp(COUNT.sum() * variance + variance / 2)
    exact = {
        ("mean", "mean"): COUNT.sum() * variance,
        ("sd", "mean"): variance**0.5,
        ("mean", "power"): power,
        ("sd", "power"): power * np.sqrt(np.exp(variance) - 1),
    }

    def is_near(kind: str, name: str, value: float) -> bool:
        found = result[kind]
        error = 5 * found.standard_error[name] + found.bias_bound[name] + 1e-6 * abs(value)
        return bool(abs(found.value[name] - value) <= error)

    assert all(is_near(*place, value) for place, value in exact.items())
    # The control: a row too few would be seen.
    assert not is_near("mean", "mean", COUNT[1:].sum() / N)
    assert not is_near("mean", "power", np.exp(COUNT[1:].sum() / N + 0.5 / N))


def test_pymc_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(InputError, match=r'pip install "tallbayes\[pymc\]"'):
        from_pymc(None)


def test_importing_tallbayes_imports_no_pymc() -> None:
    code = "import sys, tallbayes.doors.pymc.bambi; assert not {'pymc', 'pytensor', 'bambi'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
