"""Plates of groups in NumPyro models: recognised where that is right, integrated exactly, and left where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro_groups as models
import pytest
from numpyro_groups import LEVEL, OTHER
from numpyro_models import GROUP, G, N, X, Y, dist, hierarchical, moved, numpyro, observe
from scipy.special import logsumexp

import tallbayes as tb
from tallbayes.doors.numpyro.model import from_numpyro
from tallbayes.doors.plates import groups as recognition
from tallbayes.errors import ModelError

joint = numpyro.infer.util.log_density


class Case(NamedTuple):
    """`sites` are those that are integrated, with the shape of an entry; `about` is what effects are shown about."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    sites: dict[str, tuple[int, ...]]
    plate: str = "groups"
    options: dict[str, Any] | None = None
    about: Callable[..., Any] = lambda theta: 0.0
    axis: int = 0


ONE: dict[str, tuple[int, ...]] = {"effect": ()}
CASES = {
    "not centred": Case(hierarchical, (X, GROUP, Y, N), {"raw": ()}, options={"num_groups": G}),
    "centred": Case(models.centred, (jnp.asarray(GROUP), jnp.asarray(Y)), ONE),
    "by a handler": Case(
        models.not_centred_by_handler, (jnp.asarray(GROUP), jnp.asarray(Y)), {"effect_decentered": ()}
    ),
    "slopes": Case(models.slopes, (X, GROUP, Y), {"level": (), "slope": ()}, "group"),
    "deterministic": Case(models.correlated, (X, GROUP, Y), {"effect": (2,)}),
    "vectors": Case(models.vectors, (X, GROUP, Y), {"effect": (2,)}),
    "by level": Case(models.by_level, (LEVEL, GROUP, Y), ONE, about=lambda theta: theta["slope"] * LEVEL[:, None]),
    "by level, not centred": Case(models.by_level_not_centred, (LEVEL, GROUP, Y), ONE),
    "positive": Case(models.positive, (GROUP, Y), ONE),
    "heavy": Case(models.heavy, (GROUP, Y), ONE),
    "factor": Case(models.with_factor, (GROUP, Y), ONE),
    "two plates": Case(models.of_two_plates, (GROUP, Y), {"effect": (2,)}, axis=1),
    "one from another": Case(models.one_from_another, (GROUP, Y), {"spread": (), "effect": ()}),
    "crossed": Case(models.crossed, (GROUP, OTHER, Y), {"second": ()}, "others"),
}


# Of a form that others have too.
SLOW = ("slopes", "deterministic", "by level", "by a handler", "positive", "heavy", "factor", "two plates")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, case in CASES.items()],
)
def test_the_density_given_all_effects_is_that_of_numpyro(case: Case) -> None:
    """log p(theta) + sum_g log p(b_g | theta) + sum_i l_i(theta, b_g(i)) = log p(theta, z, y) + log |dz / db|."""
    options = case.options or {}
    model, data = from_numpyro(case.model, *case.args, **options)
    groups = model.groups
    assert groups is not None
    assert groups.by == case.plate
    assert not set(case.sites) & set(model.initial)
    assert "integrated out" in model.notes[0]
    codes = data[case.plate]
    np.testing.assert_array_equal(codes, OTHER if case.plate == "others" else GROUP)
    rows = {name: array for name, array in data.items() if name != case.plate}
    size, count = groups.size, codes.max() + 1

    def both(theta: Any, b: Any, codes: Any) -> tuple[jax.Array, jax.Array]:
        effects = jax.vmap(groups.vector)(b)
        ours = model.log_prior(theta) + jnp.sum(jax.vmap(groups.log_density, (None, 0))(theta, effects))
        ours += jnp.sum(jax.vmap(model.log_likelihood, (None, 0, 0))(theta, effects[codes], rows))
        shown = jax.vmap(lambda each: jnp.ravel(groups.shown(theta, groups.vector(each))))
        volume = jax.vmap(jax.jacfwd(lambda each: jnp.ravel(groups.shown(theta, groups.vector(each)))))(b)
        values, used = shown(b) + case.about(theta), 0
        for name, shape in case.sites.items():
            wide = int(np.prod(shape))
            theta = {**theta, name: jnp.moveaxis(values[:, used : used + wide].reshape(count, *shape), 0, case.axis)}
            used += wide
        theirs = joint(case.model, case.args, options, theta)[0]
        return ours, theirs + jnp.sum(jnp.linalg.slogdet(volume)[1])

    with jax.enable_x64(True):
        theta, b = moved(model), np.random.default_rng(2).normal(0.0, 0.7, (count, size))
        ours, theirs = jax.jit(both)(theta, b, codes)
        assert ours.dtype == jnp.float64
        assert float(ours) == pytest.approx(float(theirs), rel=1e-10)
        # The control: with the rows of two groups exchanged it is another density.
        others = np.where(codes == 0, 1, np.where(codes == 1, 0, codes))
        assert float(jax.jit(both)(theta, b, others)[0]) != pytest.approx(float(theirs), rel=1e-6)


NOT_RECOGNISED = {
    "about their mean": (models.about_their_mean, (GROUP, Y), "reduce sum reads all its entries together"),
    "two indices": (models.of_neighbours, (GROUP, Y), "more than one index"),
    "a fixed entry": (models.beside_the_first, (GROUP, Y), "picked out, whatever the row is"),
    "a walk": (models.walking, (GROUP, Y), "cumsum reads all its entries together"),
    "columns": (models.by_columns, (GROUP, Y), "a product reads all its entries together"),
    "index by a parameter": (models.by_a_parameter, (GROUP, Y), "hangs on parameters"),
    "four numbers": (models.of_four, (X, GROUP, Y), "4 numbers a group are more than 3"),
    "nothing else": (models.alone, (GROUP, Y), "no parameter would be left"),
    "sum to zero": (models.summed_up, (GROUP, Y), "reduce sum reads all its entries together"),
    "unequal": (models.unequal, (GROUP, Y), "its groups differ before any row is seen"),
    "unused": (models.unused, (Y,), "no row reads it"),
}


@pytest.mark.parametrize(("program", "args", "reason"), NOT_RECOGNISED.values(), ids=NOT_RECOGNISED)
def test_a_plate_that_is_not_recognised_is_explicit_and_told_why(program: Any, args: Any, reason: str) -> None:
    model, data = from_numpyro(program, *args)
    assert model.groups is None
    assert len(model.initial["effect"]) == G
    assert "groups" not in data
    (note,) = model.notes
    assert note.startswith("groups: 'effect' of plate 'groups' not integrated, because ")
    assert reason in note
    explicit, rows = from_numpyro(program, *args, integrate=False)
    assert sorted(explicit.initial) == sorted(model.initial)
    assert sorted(rows) == sorted(data)
    assert explicit.notes == ()


def test_effects_of_other_plates_are_parameters() -> None:
    model, _ = from_numpyro(models.crossed, GROUP, OTHER, Y)
    assert {name: np.shape(start) for name, start in model.initial.items()} == {"first": (G,), "scale": ()}
    assert model.notes[1] == "groups: 'first' not integrated, because only one plate is"


def test_only_the_trial_on_a_few_rows_stops_a_form_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the trial sees what the recognition itself would have let through."""
    right = recognition._index
    monkeypatch.setattr(recognition, "_index", lambda *each: (right(*each) + 1) % G)
    model, _ = from_numpyro(models.by_level_not_centred, LEVEL, GROUP, Y)
    assert model.groups is None
    assert "do not have the density of the model" in model.notes[0]


def test_a_row_does_not_look_at_all_groups() -> None:
    many = 1_009

    def counts(group, y):
        mean, spread = models.normal(), models.scale()
        effect = models.along(dist.Normal(mean, spread), size=many)
        observe(jnp.exp(effect)[group], y)

    def text(function: Callable[..., Any], *given: Any) -> str:
        with jax.enable_x64(True):
            return jax.jit(jax.grad(function)).lower(*given).compile().as_text()

    model, data = from_numpyro(counts, GROUP, Y)
    assert model.groups is not None
    row = {name: array[0] for name, array in data.items() if name != "groups"}
    assert f"[{many}" not in text(model.log_likelihood, model.initial, np.float64(0.3), row)
    assert f"[{many}" not in text(model.groups.log_density, model.initial, np.float64(0.3))
    # The control: the explicit model does.
    explicit, rows = from_numpyro(counts, GROUP, Y, integrate=False)
    assert f"[{many}" in text(explicit.log_likelihood, explicit.initial, {name: each[0] for name, each in rows.items()})


def test_the_integrated_density_is_that_of_brute_force() -> None:
    """log of the integral of exp log p(theta, z, y) over both effects, by a grid, against the nodes' log p_g."""
    from tallbayes.groups.nodes import find_nodes, with_nodes
    from tallbayes.groups.placing import gather
    from tallbayes.setup.preparation import place

    def two(group, y):
        mean, spread = models.normal(), models.scale()
        effect = models.along(dist.Normal(mean, spread), size=2)
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Poisson(jnp.exp(effect[group])), obs=y)

    group, y = np.array([0, 1, 1, 0, 1]), np.array([0.0, 3.0, 1.0, 2.0, 2.0])
    model, data = from_numpyro(two, group, y)
    assert model.groups is not None
    gathered = gather(tb.Model(**{**vars(model), "groups": tb.Groups(**{**vars(model.groups), "nodes": 31})}), data)
    placed = place(gathered.model, gathered.units, "float64", False, None, gathered.bound)
    for place_in_space in ([0.3, -0.2], [-0.5, 0.4]):
        vector = np.array(place_in_space)
        rows = with_nodes(placed.table, find_nodes(placed.target, placed.table, vector))
        with jax.enable_x64(True):
            theta = jax.jit(placed.target.space.theta)(vector)
            units = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], rows) for k in range(2)]
            log_likelihood = jax.jit(placed.target.log_likelihood)
            ours = jax.jit(model.log_prior)(theta) + sum(log_likelihood(vector, each) for each in units)
            line = np.linspace(-12.0, 8.0, 1_001)

            def at(first: Any, second: Any, theta: Any = theta) -> Any:
                return joint(two, (group, y), {}, {**theta, "effect": jnp.stack([first, second])})[0]

            grid = jax.jit(jax.vmap(jax.vmap(at, (None, 0)), (0, None)))(line, line)
            brute = logsumexp(grid) + 2 * np.log(line[1] - line[0])
        assert float(ours) == pytest.approx(float(brute), abs=1e-7)


ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str, Callable[..., Any]]] = {
    "of rows": (models.of_rows, (Y,), "hidden", lambda theta: 0.0),
    "by columns": (
        models.of_rows_by_columns,
        (X, GROUP, Y),
        "hidden",
        lambda theta: X @ theta["slope"] + theta["effect"][GROUP],
    ),
    "positive": (models.of_rows_positive, (np.round(np.abs(Y)),), "rate", lambda theta: 0.0),
}


@pytest.mark.parametrize(("program", "args", "site", "about"), ROWS.values(), ids=ROWS)
def test_a_latent_variable_of_every_row_is_a_group_of_one(program: Any, args: Any, site: str, about: Any) -> None:
    model, data = from_numpyro(program, *args)
    groups = model.groups
    assert groups is not None
    assert site not in model.initial
    np.testing.assert_array_equal(data["data"], np.arange(N))
    rows = {name: array for name, array in data.items() if name != "data"}

    def both(theta: Any, b: Any) -> tuple[jax.Array, jax.Array]:
        ours = model.log_prior(theta) + jnp.sum(jax.vmap(groups.log_density, (None, 0))(theta, b))
        ours += jnp.sum(jax.vmap(model.log_likelihood, (None, 0, 0))(theta, b, rows))
        value = lambda each: groups.shown(theta, each)[0]  # noqa: E731
        hidden = jax.vmap(value)(b) + about(theta)
        volume = jnp.sum(jnp.log(jnp.abs(jax.vmap(jax.grad(value))(b))))
        return ours, joint(program, args, {}, {**theta, site: hidden})[0] + volume

    with jax.enable_x64(True):
        ours, theirs = jax.jit(both)(moved(model), np.random.default_rng(2).normal(0.0, 0.7, N))
        assert float(ours) == pytest.approx(float(theirs), rel=1e-10)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (models.of_rows_in_a_chain, "sum of terms of single rows"),
        (models.of_rows_all_together, "sum of terms of single rows"),
        (models.four_of_rows, "'hidden', of which 4 numbers a group are more than 3.*marginalise"),
        (models.rows_alone, "no parameter would be left"),
    ],
)
def test_latent_variables_of_rows_that_hang_together_are_refused(program: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=rf"expected .*{reason}"):
        from_numpyro(program, Y)


def test_rows_with_an_effect_of_their_own_have_no_weights() -> None:
    model, data = from_numpyro(models.of_rows, Y)
    with pytest.raises(tb.errors.DataError, match=r"expected no weights .* Try"):
        tb.estimate(model, data, tolerance=0.1, weights=np.ones(N))
