"""The certificate: what is wrong with the Gaussian's answers, by paired weights of draws theta_s, and by how much.

    log p(y_i | y_-i) = log E_cavity p_i + [log sum w / sum w e^-l_i] - [log sum g_i p_i / sum g_i]
    log E p(y_i | theta) = log E_G p_i + [log sum w p_i / sum w] - [log sum g p_i / sum g]

w = pi / q, g = G / q, and g_i = cavity / q, the Gaussian without row i; both first terms are integrals over eta_i
alone, known by quadrature. The second bracket estimates the first term itself by the same draws: where the posterior is
that Gaussian and l_i a parabola, nothing is left. Every bracket is finite for every family, as p_i is bounded where it
is averaged. To first order draw s adds to the sum over rows i, each of which stands for a_i,

    psi_s = sum_i a_i (w_s - (w e^-l_i)_s - (g_i p_i)_s + (g_i)_s),   each divided by its mean

and the bias of the logarithms is half the same sum of variances over S. A row is `troubled` where few draws hold much
of w e^-l_i. Without predictors there is no integral, and the second bracket is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.gaussian.quadrature import normal_rule
from tallbayes.gaussian.whitening import Whitening
from tallbayes.leave_one_out.cavity import Cavity, cavities, has_cavity, hermite, values
from tallbayes.leave_one_out.rows import ChosenRows
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.weighing.weights import LARGEST_SHARE, Weights

PART_ROWS = 256
# Of the exponent of one weight: beyond, it is no number.
MOST_EXPONENT = 690.0
# Where a row's own weights have a tail as heavy as this, their variance is not to be trusted.
MOST_TAIL = 0.5
FINE_NODES = {2: 15, 3: 11}


class Integrals(NamedTuple):
    """What integrals say of some rows: log E_cavity p and log E_G p, and their cavities as arrays of NumPy."""

    cavity: Floats
    fitted: Floats
    shape: Cavity | None


@dataclass(frozen=True, eq=False)
class Certified:
    """Answers of some rows, and the sums over rows of what every draw adds to them; `bias` is that of the logarithms.

    `troubled` are rows whose own weights cannot be trusted.
    """

    elpd: Floats
    fitted: Floats
    by_draw: Floats
    fitted_by_draw: Floats
    bias: float
    troubled: np.ndarray


def known(target: Target, rows: Any, mode: Floats, whitening: Whitening) -> Integrals:
    """Of some rows, by fine rules."""
    count = len(jax.tree.leaves(rows)[0])
    if not has_cavity(target):
        return Integrals(np.zeros(count), np.zeros(count), None)
    parts = []
    with jax.enable_x64(True):
        for start in range(0, count, PART_ROWS):
            part = _padded(jax.tree.map(lambda leaf, at=start: leaf[at : at + PART_ROWS], rows))
            found = compiled(_known)(target, part, mode, whitening)
            parts.append(jax.tree.map(lambda leaf: np.asarray(leaf), found))
    cavity, fitted, shape = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)
    return Integrals(cavity, fitted, shape)


def _padded(rows: Any) -> Any:
    """With copies of the last row, so that one program serves all parts."""

    def longer(leaf: np.ndarray) -> np.ndarray:
        missing = PART_ROWS - len(leaf)
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)]) if missing else leaf

    return jax.tree.map(longer, rows)


def _known(target: Target, rows: Any, mode: jax.Array, whitening: Whitening) -> tuple[jax.Array, jax.Array, Cavity]:
    rows, size = in_float64(rows), target.layout.size
    shape = cavities(target, rows, mode, whitening)
    if size == 1:
        nodes, shares = normal_rule(2.0)
        u, weights = jnp.asarray(nodes[:, None]), jnp.asarray(shares)
    else:
        u, weights = (jnp.asarray(each) for each in hermite(FINE_NODES[size], size))

    def add(k: jax.Array, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        cavity, fitted = totals
        without = -shape.pull / shape.left + u[k] / jnp.sqrt(shape.left)
        share = jnp.log(weights[k])
        return (
            jnp.logaddexp(cavity, share + values(target, shape, without, rows)),
            jnp.logaddexp(fitted, share + values(target, shape, jnp.broadcast_to(u[k], without.shape), rows)),
        )

    nothing = jnp.full(len(shape.pull), -jnp.inf)
    return *jax.lax.fori_loop(0, len(weights), add, (nothing, nothing)), shape


def densities(target: Target, rows: Any, mode: Floats, moves: Floats) -> Floats:
    """l of some rows at draws, (rows, draws)."""
    count = len(jax.tree.leaves(rows)[0])
    with jax.enable_x64(True):
        found = compiled(_densities)(target, _padded(rows), mode, moves)
        return np.asarray(found)[:count]


def _densities(target: Target, rows: Any, mode: jax.Array, moves: jax.Array) -> jax.Array:
    rows, layout = in_float64(rows), target.layout
    if target.predictor is None:
        each = jax.vmap(target.log_likelihood.call, (None, 0))
        return jax.lax.map(lambda move: each(mode + move, rows), moves).T
    eta, steps = layout.predict(rows, mode), layout.moved(rows, moves.T)
    at = eta[None] + (steps[0].T if layout.is_scalar else steps.transpose(2, 1, 0))
    value = jax.vmap(target.predictor.call)
    return jax.lax.map(lambda each: value(each, rows), at).T


def draws_in_u(target: Target, rows: Any, whitening: Whitening, shape: Cavity, z: Floats) -> Floats:
    """u of every row at draws z, (rows, predictors, draws): (L U)^-1 A W z."""
    return np.linalg.solve(shape.root, along(target, rows, whitening, z))


def along(target: Target, rows: Any, whitening: Whitening, z: Floats) -> Floats:
    """A W z of every row, (rows, predictors, draws)."""
    with jax.enable_x64(True):
        moves = jnp.asarray(whitening.move(z).T)
        return np.asarray(target.layout.moved(in_float64(jax.tree.map(jnp.asarray, rows)), moves)).transpose(1, 0, 2)


def certify(
    target: Target,
    chosen: ChosenRows,
    facts: Integrals,
    mode: Floats,
    whitening: Whitening,
    z: Floats,
    log_posterior: Floats,
    log_gaussian: Floats,
) -> Certified:
    """Of chosen rows, by draws z with log pi / q and log G / q."""
    weights = Weights.of(log_posterior, log_gaussian)
    w, g, moves, count = weights.posterior, weights.gaussian, whitening.move(z), len(z)
    elpd, fitted = np.empty(len(chosen.places)), np.empty(len(chosen.places))
    troubled = np.zeros(len(chosen.places), bool)
    by_draw, fitted_by_draw, bias = np.zeros(count), np.zeros(count), 0.0
    for start in range(0, len(elpd), PART_ROWS):
        part = slice(start, start + PART_ROWS)
        own = chosen.part(part)
        here = densities(target, own.rows, mode, moves)
        reference = np.median(here, axis=1, keepdims=True)
        with np.errstate(over="ignore", invalid="ignore"):
            inverse, direct = (np.exp(np.minimum(s * (here - reference), MOST_EXPONENT)) for s in (-1, 1))
            without, with_it = _mean_one(w * inverse), _mean_one(w * direct)
            elpd[part] = reference[:, 0] - np.log(np.mean(w * inverse, axis=1))
            fitted[part] = reference[:, 0] + np.log(np.mean(w * direct, axis=1))
            a = own.counts
            shares, second = a @ (w - without), a @ np.sum(without**2 - w**2, axis=1)
            fitted_shares = a @ (with_it - w)
            if facts.shape is not None:
                shape = jax.tree.map(lambda leaf, at=part: leaf[at], facts.shape)
                u = draws_in_u(target, own.rows, whitening, shape, z)
                parabola = np.einsum("nk,nks->ns", shape.pull, u) + np.einsum("nk,nks->ns", shape.bend, u**2) / 2
                tilted = np.exp(np.clip(-parabola, -MOST_EXPONENT, MOST_EXPONENT)) * g
                cavity, paired, same = _mean_one(tilted), _mean_one(tilted * direct), _mean_one(g * direct)
                elpd[part] += (
                    facts.cavity[part]
                    - reference[:, 0]
                    - np.log(np.mean(tilted * direct, axis=1) / np.mean(tilted, axis=1))
                )
                fitted[part] += facts.fitted[part] - reference[:, 0] - np.log(np.mean(g * direct, axis=1))
                shares += a @ (cavity - paired)
                second += a @ np.sum(paired**2 - cavity**2, axis=1)
                fitted_shares -= a @ (same - g)
        by_draw, fitted_by_draw = by_draw + shares, fitted_by_draw + fitted_shares
        bias += second / (2 * count**2)
        troubled[part] = [_is_troubled(each, g) for each in without]
    return Certified(elpd, fitted, by_draw, fitted_by_draw, float(bias), troubled)


def _mean_one(numbers: Floats) -> Floats:
    return numbers / np.mean(numbers, axis=1, keepdims=True)


def _is_troubled(weights: Floats, gaussian: Floats) -> bool:
    if not np.isfinite(weights).all() or weights.max() > LARGEST_SHARE * len(weights):
        return True
    return weights.max() > LARGEST_SHARE / 5 * len(weights) and Weights(weights, gaussian).tail > MOST_TAIL
