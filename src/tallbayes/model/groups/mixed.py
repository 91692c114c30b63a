"""Mixed models: a family's regression with effects by group.

    eta_i = x_i . beta + sum_t z_it . b_t[group_t(i)],     b ~ N(0, D_t),     D_t = T R T,  T = diag(scales)

Of the terms t the first is integrated out: its groups are rows (`integral`), and its effect is a = L^-1 b, standard
normal, with L L^T = D, so that nothing happens to it as a scale goes to nothing. The effects of the others, crossed or
nested, are parameters like any other.

Scales are half-normal a priori, unless other laws are stated; R is LKJ, of shape eta: with partial correlations r_jk,
in columns k < j,

    p(r_jk) ~ (1 - r_jk^2)^(eta + (q - 2 - k) / 2 - 1)      each by itself

Nodes are those of v, a = K^-T v with K K^T = I + L^T C L, C the sum of w z z^T over a group's rows and w about what a
row says of eta: a given theta has about the precision K K^T, so that v stays where it is as scales move. So it is with
effects that are parameters, whose place in R^d is v (`terms`). C is taken at the linear predictor that is the same for
all rows.

A row is that of the family with "z0" (q,) of the term that is integrated, and for the others "z1", ... and "level1",
..., their levels as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import DataError, ModelError, explain
from tallbayes.model.catalogue import BESIDE
from tallbayes.model.constraints import correlation, half_normal
from tallbayes.model.groups.integral import WEIGHT, Groups
from tallbayes.model.groups.linear import LinearIntegral
from tallbayes.model.groups.matrices import solve_lower
from tallbayes.model.groups.reads import read_place
from tallbayes.model.groups.terms import EffectTerm, Stretched, root_of, stretch
from tallbayes.model.linear import Layout
from tallbayes.model.model import Model
from tallbayes.model.parts.extras import ExtraPart, first_of, with_extras
from tallbayes.model.priors.assigned import own_log_prior, runs_of
from tallbayes.model.smooths import SmoothTerm
from tallbayes.model.smooths import log_prior as smooth_prior
from tallbayes.programs.later import jax, jitted, jnp

# Of what their noise's scale is 1, rows say less of eta by its square.
IN_UNITS_OF_NOISE = ("linear", "student_t")
# Linear predictors that are tried, and rows that they are tried on.
GRID, SAMPLE_ROWS, LEAST_INFORMATION = 8, 4_096, 1e-6
FIRST_SCALE = 0.5


def with_effects(model: Model, *terms: EffectTerm, names: tuple[str, ...] | None = None) -> Model:
    """A family's model with effects by group; those of the first term are integrated out.

    Parameters are the family's, in a dict, then for every term t "scales{t}" and, where effects are correlated, partial
    "correlations{t}"; of a term that is not integrated also its "effects{t}". `names` are those of the first's effects.

    >>> from tallbayes.model.families import poisson
    >>> schools = with_effects(poisson(), EffectTerm("school"))
    """
    _require_one_predictor(model)
    parts, layout = model.parts, model.layout
    assert parts is not None
    first = terms[0]
    extra, extras = extra_of(model), parts.extras
    constraints: dict[str, Any] = dict(model.constraints or {})
    for place, term in enumerate(terms):
        constraints[f"scales{place}"] = half_normal(term.scale)
        if term.correlations:
            constraints[f"correlations{place}"] = correlation
        if place:
            constraints[f"effects{place}"] = Stretched(term, place)
    prior = partial(_prior, parts.own, extras, parts.smooths, terms)
    likelihood = partial(_likelihood, parts.density, extras, layout, terms)
    return replace(
        model,
        log_prior=prior,
        log_likelihood=likelihood,
        initial=partial(_start, model.initial, terms),
        predictor=None,
        layout=Layout(),
        log_concave=False,
        parts=parts._replace(terms=terms, log_prior=prior),
        check=partial(_check, model.check, terms),
        constraints=constraints,
        groups=Groups(
            by=first.by,
            effect=np.zeros(first.size),
            log_density=_standard_normal,
            shown=partial(_shown, first),
            names=names,
            closed=_closed(model, terms, extra),
            weigh_rows=partial(row_information, parts.density, extras),
            stretch=partial(_stretch, first),
            reads=tuple((f"effects{place}", f"level{place}") for place in range(1, len(terms))),
        ),
    )


def _require_one_predictor(model: Model) -> None:
    if model.parts is None or model.layout.heads != 1:
        hint = (
            "a logistic fit for each class but one, on the rows of that class and of the reference; or the groups as "
            "categories, C(school) in place of (1 | school)"
        )
        raise ModelError(explain("a family with one linear predictor, for effects of groups", f"{model.family}", hint))


def _stretch(term: EffectTerm, theta: Any, information: Any) -> Any:
    return stretch(root_of(term, theta, 0), information)


def with_information(model: Model, term: EffectTerm, place: int, rows: Any) -> EffectTerm:
    """A term that is not integrated, with what these rows say of the effects of its levels; `model` is the family's."""
    _require_one_predictor(model)
    assert model.parts is not None
    extra = extra_of(model)
    each = row_information(model.parts.density, model.parts.extras, rows)
    z = np.asarray(rows[f"z{place}"], np.float64)
    weights = each * np.asarray(rows.get(WEIGHT, np.ones(len(z))), np.float64)
    codes = np.asarray(rows[f"level{place}"])
    sums = [np.bincount(codes, weights * left * right, term.levels) for left in z.T for right in z.T]
    noise = extra if model.family in IN_UNITS_OF_NOISE else None
    return replace(term, information=tuple(np.stack(sums, axis=-1).ravel().tolist()), noise=noise)


def extra_of(model: Model) -> str | None:
    """A family's first parameter beside those of its linear predictor."""
    assert model.parts is not None
    return first_of(model.parts.extras)


def row_information(density: Callable[..., Any], extras: tuple[ExtraPart, ...], rows: Any) -> float:
    """w, of which C is the sum of w z z^T: the mean of -l'' at the common linear predictor that fits best."""
    count = len(rows["y"])
    some = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(int))
    sample = {name: np.asarray(rows[name])[some] for name in ("y", "offset", *BESIDE) if name in rows}
    with jax.enable_x64(True):
        bends = _bends(density, extras, sample)
    return max(float(np.mean(np.asarray(bends))), LEAST_INFORMATION)


@jitted(static_argnums=(0, 1))
def _bends(density: Callable[..., Any], extras: tuple[ExtraPart, ...], sample: Any) -> jax.Array:
    """-l'' of every row at the common linear predictor that fits best."""
    start = {each.name: each.start for each in extras}

    def value(eta: Any, row: Any) -> Any:
        return density(with_extras(eta, extras, start), row)

    grid = jnp.linspace(-GRID, GRID, 8 * GRID + 1)
    totals = jax.vmap(lambda eta: jnp.mean(jax.vmap(lambda row: value(eta, row))(sample)))(grid)
    eta = grid[jnp.argmax(jnp.where(jnp.isfinite(totals), totals, -jnp.inf))]
    return jax.vmap(lambda row: -jax.grad(jax.grad(value))(eta, row))(sample)


def _closed(model: Model, terms: tuple[EffectTerm, ...], extra: str | None) -> Callable[[Groups], Any] | None:
    """Of normal noise."""
    if model.family != "linear":
        return None
    noise = None if model.noise is None else model.noise.scale
    return partial(_linear_integral, model.layout, extra, noise, terms)


def _first_root(term: EffectTerm, theta: Any) -> Any:
    return root_of(term, theta, 0)


def _linear_integral(
    layout: Layout, extra: str | None, noise: float | None, terms: tuple[EffectTerm, ...], groups: Groups
) -> Any:
    root, predictor = partial(_first_root, terms[0]), partial(predictor_of, layout, terms)
    return LinearIntegral(layout, root, extra, noise, groups, terms[0].size, predictor, len(terms) > 1)


def _standard_normal(theta: Any, b: Any) -> Any:
    return -0.5 * jnp.sum(b**2)


def _shown(term: EffectTerm, theta: Any, b: Any) -> Any:
    return root_of(term, theta, 0) @ b


def predictor_of(layout: Layout, terms: tuple[EffectTerm, ...], theta: Any, row: Any) -> Any:
    """eta but for the effects of the first term."""
    eta = layout.combine(row, theta["coefficients"])
    if layout.intercept:
        eta = eta + theta["intercept"]
    for place in range(1, len(terms)):
        # Of a unit, theta has the effects of its own levels alone (`reads`).
        own = row[read_place(f"level{place}")]
        eta = eta + row[f"z{place}"] @ jnp.take(theta[f"effects{place}"], own, axis=0)
    return eta


def _likelihood(
    density: Callable[..., Any],
    extras: tuple[ExtraPart, ...],
    layout: Layout,
    terms: tuple[EffectTerm, ...],
    theta: Any,
    b: Any,
    row: Any,
) -> Any:
    eta = predictor_of(layout, terms, theta, row) + row["z0"] @ (root_of(terms[0], theta, 0) @ b)
    return density(with_extras(eta, extras, theta), row)


def _prior(
    own: Mapping[str, Any],
    extras: tuple[ExtraPart, ...],
    smooths: tuple[SmoothTerm, ...],
    terms: tuple[EffectTerm, ...],
    theta: Any,
) -> Any:
    """`own` are the scales of the Gaussian priors of coefficients, or the laws that were stated."""
    total = own_log_prior(own, theta) + smooth_prior(smooths, theta)
    total = total + sum(each.log_prior(theta[each.name]) for each in extras)
    for place, term in enumerate(terms):
        if term.laws:
            total = total + sum(run.log_density(theta[f"scales{place}"]) for run in runs_of(term.laws))
        else:
            total = total - 0.5 * jnp.sum((theta[f"scales{place}"] / term.scale) ** 2)
        if term.correlations:
            total = total + jnp.sum(powers_of(term) * jnp.log1p(-(theta[f"correlations{place}"] ** 2)))
        if place:
            root, effects = root_of(term, theta, place), theta[f"effects{place}"]
            standard = solve_lower(root, effects.T)
            total = total - 0.5 * jnp.sum(standard**2) - term.levels * jnp.sum(jnp.log(jnp.diagonal(root)))
    return total


def powers_of(term: EffectTerm) -> np.ndarray:
    """a of (1 - r_jk^2)^a, the prior of every partial correlation."""
    return np.array([term.shape + (term.size - 2 - k) / 2 - 1 for j in range(term.size) for k in range(j)])


def _start(initial: Callable[[Any], Any], terms: tuple[EffectTerm, ...], row: Any) -> dict[str, Any]:
    base = initial(row)
    start = dict(base) if isinstance(base, dict) else {"coefficients": base}
    for place, term in enumerate(terms):
        start[f"scales{place}"] = np.full(term.size, FIRST_SCALE * min(term.scale, 1.0))
        if term.correlations:
            start[f"correlations{place}"] = np.zeros(term.correlations)
        if place:
            start[f"effects{place}"] = np.zeros((term.levels, term.size))
    return start


def _check(check: Callable[[Any], Any] | None, terms: tuple[EffectTerm, ...], data: Any) -> Any:
    """The family's own check, and a column of numbers for every effect."""
    own = {f"{name}{place}" for place in range(len(terms)) for name in ("z", "level")}
    data = {
        **data,
        **{f"z{p}": np.ones((len(data["y"]), 1)) for p, t in enumerate(terms) if t.size == 1 and f"z{p}" not in data},
    }
    rest = {name: array for name, array in data.items() if name not in own}
    rest = rest if check is None else check(rest)
    for place, term in enumerate(terms):
        z = np.asarray(data.get(f"z{place}", np.empty(0)))
        if z.shape != (len(data["y"]), term.size):
            got = f"shape {z.shape}"
            raise DataError(
                explain(f"z{place} of {term.size} columns, a number a row for each effect", got, "z of ones")
            )
        if z.dtype.kind != "f":
            z = z.astype(np.float64)
        rest[f"z{place}"] = z
        if place:
            levels = np.asarray(data[f"level{place}"])
            if levels.dtype.kind not in "iu" or levels.min() < 0 or levels.max() >= term.levels:
                got = f"{levels.dtype} from {levels.min()} to {levels.max()}"
                raise DataError(explain(f"levels 0 to {term.levels - 1} of {term.by!r}", got, "codes of its levels"))
            rest[f"level{place}"] = levels
    return rest
