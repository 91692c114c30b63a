"""Quantities: from what was asked for to the observables of a path, and their scale under the Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.gaussian_level import reported_sd
from tallbayes.errors import InputError, ModelError, explain
from tallbayes.estimator.estimands import Estimands, Quantity
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.model.space import shaped
from tallbayes.moments import Floats
from tallbayes.programs.identity import identify, output_of
from tallbayes.programs.later import jax, jitted, jnp
from tallbayes.structure import Structure

LAPLACE_DRAWS = 1024
# Draws of very many parameters are read a few at a time.
FEWEST_DRAWS, MOST_NUMBERS = 64, 2**22 + 2**12


def make_estimands(
    wanted: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None, target: Target, anchor: Anchor, units: Any = None
) -> Estimands:
    """Read the `quantities` argument: names and functions of theta, or "mean" and "sd" by default."""
    quantities, observables = read_quantities(wanted, target, anchor.mode, units)
    scale, jump = laplace_scale(target, observables, anchor, units, [(q.name, q.columns) for q in quantities])
    mode = anchor.mode
    if not target.reports_itself:
        with jax.enable_x64(True):
            mode = np.asarray(_reported(target, anchor.mode, units))
    return Estimands(quantities, observables, mode, scale, jump)


def touched_by(target: Target, estimands: Estimands, mode: Floats, units: Any, slow: tuple[int, ...]) -> np.ndarray:
    """Which components hang on any of these places of theta: means and sds by the report's slope, functions all."""
    touched = np.zeros(estimands.size, bool)
    if not slow:
        return touched
    moves = (np.arange(target.dimension) == np.array(slow)[:, None]).astype(np.float64)
    with jax.enable_x64(True):
        slopes = jax.vmap(lambda move: target.moved(jnp.asarray(mode), move, units))(jnp.asarray(moves))
    reported, start = np.any(np.asarray(slopes) != 0, axis=0), 0
    for quantity in estimands.quantities:
        size = quantity.structure.size
        touched[start : start + size] = reported if quantity.kind in ("mean", "sd") else True
        start += size
    return touched


@jitted(static_argnums=0)
def _reported(target: Target, vector: jax.Array, units: Any) -> jax.Array:
    return target.reported_vector(vector, units)


def read_quantities(
    wanted: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None, target: Target, point: Floats, units: Any = None
) -> tuple[tuple[Quantity, ...], Observables]:
    """Where each quantity stands among the observables, and the observables; `point` is any theta."""
    named = _named(wanted)
    moments = any(kind in ("mean", "sd") for kind in named.values())
    size = target.structure.size
    position = 2 * size if moments else 0
    quantities, functions = [], []
    theta = shaped(output_of(target.reported, np.asarray(point), units))
    for name, what in named.items():
        if isinstance(what, str):
            quantities.append(Quantity(name, what, _MOMENT_COLUMN[what] * size, target.structure))
            continue
        shape = output_structure(name, what, theta)
        functions.append(identify(what, theta))
        quantities.append(Quantity(name, "expectation", position, shape))
        position += shape.size
    return tuple(quantities), Observables(moments, tuple(functions))


_MOMENT_COLUMN = {"mean": 0, "sd": 1}


def _named(wanted: Any) -> dict[str, Any]:
    if wanted is None:
        wanted = ("mean", "sd")
    if isinstance(wanted, str):
        wanted = (wanted,)
    if not isinstance(wanted, Mapping | Sequence):
        raise InputError(explain("quantities by name", repr(wanted), '{"norm": lambda theta: jnp.sum(theta**2)}'))
    if not isinstance(wanted, Mapping):
        wanted = {str(name): name for name in wanted}
    for name, what in wanted.items():
        if not (callable(what) or (isinstance(what, str) and what in _MOMENT_COLUMN)):
            raise InputError(
                explain(
                    'quantities by name, each "mean", "sd" or a function of theta',
                    f"{name!r}: {what!r}",
                    '{"norm": lambda theta: jnp.sum(theta**2)}',
                )
            )
    if not wanted:
        raise InputError(explain("at least one quantity", "none", '("mean", "sd")'))
    return dict(wanted)


def output_structure(name: str, function: Callable[[Any], Any], theta: Any) -> Structure:
    try:
        out = output_of(function, theta)
    except Exception as error:
        raise ModelError(
            explain(
                f"quantity {name!r} to be a function of theta that JAX can trace",
                f"{type(error).__name__}: {error}",
                "call it by hand on the start values",
            )
        ) from error
    structure = Structure.of(jax.tree.map(lambda leaf: np.empty(leaf.shape), out))
    real = all(leaf.dtype.kind in "biuf" for leaf in jax.tree.leaves(out))
    if structure.size == 0 or not real:
        raise ModelError(
            explain(f"quantity {name!r} to return real numbers", f"{out}", "an array, or a dict of arrays, of numbers")
        )
    return structure


@jitted(static_argnums=(0, 1))
def _read(
    target: Target, observables: Observables, mode: jax.Array, draws: jax.Array, directions: jax.Array, units: Any
) -> Any:
    """Values, and derivatives along a direction for every draw."""
    values = partial(observables.values, target, mode, units=units)
    return jax.vmap(lambda draw, direction: jax.jvp(values, (draw,), (direction,)))(draws, directions)


def observed_values(
    target: Target, observables: Observables, mode: Floats, draws: Floats, directions: Floats, units: Any
) -> tuple[Floats, Floats]:
    """All observables at mode + draws, and their derivatives along directions; by one program for any few draws."""
    if observables.moments and target.reports_itself and not observables.functions:
        return np.hstack([draws, draws**2]), np.hstack([directions, 2 * draws * directions])
    size = min(1 + LAPLACE_DRAWS, max(FEWEST_DRAWS, MOST_NUMBERS // draws.shape[1]))
    parts = []
    for start in range(0, len(draws), size):
        both = (np.zeros((size, draws.shape[1])), np.zeros((size, draws.shape[1])))
        for padded, given in zip(both, (draws, directions), strict=True):
            padded[: len(given[start : start + size])] = given[start : start + size]
        with jax.enable_x64(True):
            found = _read(target, observables, mode, *both, units)
        parts.append([np.asarray(part, np.float64)[: len(draws) - start] for part in found])
    values, slopes = (np.concatenate(each) for each in zip(*parts, strict=True))
    return values, slopes


@np.errstate(over="ignore", invalid="ignore")
def laplace_scale(
    target: Target, observables: Observables, anchor: Anchor, units: Any, columns: list[tuple[str, slice]]
) -> tuple[Floats, Floats]:
    """Sd of every observable under N(theta_0, H^-1), by fixed Gaussian draws (exact for theta itself), and its jumps.

    One that jumps and was not seen to do so is taken to do it with the probability that such luck allows, 3 in M.
    """
    sd = reported_sd(target, anchor, units) if observables.moments and target.reports_linearly else None
    if sd is not None and not observables.functions:
        return np.concatenate([sd, np.sqrt(2) * sd**2]), np.zeros(2 * len(sd))
    draws = np.vstack([np.zeros(target.dimension), anchor.draws(LAPLACE_DRAWS)])
    directions = np.broadcast_to(anchor.sd, draws.shape)
    values, slopes = observed_values(target, observables, anchor.mode, draws, directions, units)
    for name, part in columns:
        if not np.all(np.isfinite(values[:, part])):
            where = "the mode" if not np.all(np.isfinite(values[0, part])) else "draws near the mode"
            raise ModelError(
                explain(
                    f"quantity {name!r} to be finite",
                    f"a value that is not, at {where}",
                    "restrict it to where it is defined, e.g. jnp.where or a log of a positive part",
                )
            )
    scale, height = values[1:].std(axis=0), np.ptp(values, axis=0)
    for name, part in columns:
        if not np.all(np.isfinite(scale[part])):
            got, hint = "values too large to be squared, at draws near the mode", "its logarithm, or other units"
            raise ModelError(explain(f"a spread of quantity {name!r} that is finite", got, hint))
    jump = np.where(np.all(slopes == 0, axis=0), np.where(height > 0, height, 1.0), 0.0)
    scale = np.where((scale == 0) & (jump > 0), jump * np.sqrt(3 / LAPLACE_DRAWS), scale)
    if sd is not None:
        scale[: len(sd)] = sd
    return scale, jump
