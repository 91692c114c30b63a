"""Predictions: E f(theta, row) over the posterior for new rows, block of rows by block.

    value = f(mode) + E_Laplace[f - f(mode)] + sum_l mean_i [ f(fine_il) - mean_c f(taken off_ilc) ]

f is the mean of the response, the probability of each class, or P(y >= k) of a count: of a regression a function of
the linear predictor, so that a block of rows and all points are one product of matrices, and the Gaussian part of one
head is a quadrature. The posterior's sd of f comes from the same sums of squares. No more paths are read than bring
the Monte Carlo error down to a small part of that sd, and never is there an array of all rows by all points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.allocation import bias_terms, floored_variance
from tallbayes.answers import TRUSTED_SAMPLES
from tallbayes.moments import Floats
from tallbayes.posterior import Posterior
from tallbayes.predictors import Layout

QUADRATURE_NODES = 32
GAUSSIAN_PAIRS = 256
PATHS_READ = 2048
LEAST_PATHS = 64
PILOT_ROWS = 256
FEW_ROWS = 4096
ACCURACY = 0.05
BLOCK_NUMBERS = 2**20
BLOCK_ROWS = 2**13

COUNTS = ("poisson", "negative_binomial")


class Wanted(NamedTuple):
    """What is predicted: the mean response of a family or the probabilities of its classes; then P(y >= k)."""

    family: str
    at_least: tuple[int, ...] = ()

    def __call__(self, eta: jax.Array) -> jax.Array:
        """From linear predictors on the first axis to predictions on the first axis."""
        means = MEANS[self.family](eta)
        tails = [_tail(self.family, k, eta) for k in self.at_least]
        return jnp.concatenate([means, *tails]) if tails else means

    @property
    def reads_extras(self) -> bool:
        return bool(self.at_least) and self.family == "negative_binomial"


def _sigmoid(eta: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(eta[:1])


def _normal_cdf(eta: jax.Array) -> jax.Array:
    return jax.scipy.special.ndtr(eta[:1])


def _identity(eta: jax.Array) -> jax.Array:
    return eta[:1]


def _exponential(eta: jax.Array) -> jax.Array:
    return jnp.exp(eta[:1])


def _softmax(eta: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.concatenate([jnp.zeros_like(eta[:1]), eta]), axis=0)


MEANS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "logistic": _sigmoid,
    "probit": _normal_cdf,
    "linear": _identity,
    "student_t": _identity,
    "poisson": _exponential,
    "negative_binomial": _exponential,
    "multinomial": _softmax,
}


def _tail(family: str, k: int, eta: jax.Array) -> jax.Array:
    """P(y >= k | eta) of a count: 1 less the k probabilities below, each from the one before."""
    mean = jnp.exp(eta[:1])
    excess = jnp.exp(eta[1:2]) if family == "negative_binomial" else jnp.zeros_like(mean)
    log_first = -mean if family == "poisson" else -jnp.log1p(excess * mean) / excess

    def add(j: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, log_term = carry
        step = mean * (1 + excess * j) / ((1 + excess * mean) * (j + 1))
        return total + jnp.exp(log_term), log_term + jnp.log(step)

    below, _ = jax.lax.fori_loop(0, max(k, 0), add, (jnp.zeros_like(mean), log_first))
    return jnp.clip(1 - below, 0, 1)


class Regression(NamedTuple):
    """Predictions of rows x (rows, d) and offsets (rows,) through linear predictors."""

    wanted: Wanted
    layout: Layout

    @property
    def by_quadrature(self) -> bool:
        return self.layout.heads == 1 and not self.wanted.reads_extras

    def predictors(self, x: jax.Array, theta: jax.Array) -> jax.Array:
        """A theta for points (points, dimension): (heads and perhaps extras, rows, points)."""
        q, d = self.layout.heads, x.shape[1]
        parts = [x @ theta[:, head * d : (head + 1) * d].T for head in range(q)]
        if self.layout.intercept:
            parts = [part + theta[:, q * d + head] for head, part in enumerate(parts)]
        if self.wanted.reads_extras:
            shared = theta[:, theta.shape[1] - self.layout.extras :]
            parts += [jnp.broadcast_to(each, parts[0].shape) for each in shared.T]
        return jnp.stack(parts)

    def read(self, rows: Any, mode: jax.Array, moves: jax.Array) -> jax.Array:
        """Predictions (outputs, rows, points) at mode + moves."""
        centre, dtype = self._centre(rows, mode).astype(moves.dtype), moves.dtype
        return self.wanted(centre + self.predictors(rows[0].astype(dtype), moves))

    def gaussian(self, rows: Any, mode: jax.Array, columns: jax.Array, pairs: jax.Array) -> tuple[Any, Any]:
        """Predictions at points of Laplace's Gaussian, and the points' weights."""
        if not self.by_quadrature:
            return self.read(rows, mode, jnp.concatenate([pairs, -pairs])), None
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        sd = jnp.sqrt(jnp.sum(self.predictors(rows[0], columns) ** 2, axis=2, keepdims=True))
        return self.wanted(self._centre(rows, mode) + sd * nodes), weights / weights.sum()

    def _centre(self, rows: Any, mode: jax.Array) -> jax.Array:
        x, offset = rows
        return self.predictors(x, mode[None]).at[: self.layout.heads].add(offset[:, None])


class Own(NamedTuple):
    """Predictions by a model's own function of theta and one row."""

    target: Any
    function: Any

    @property
    def by_quadrature(self) -> bool:
        return False

    def read(self, rows: Any, mode: jax.Array, moves: jax.Array) -> jax.Array:
        def one(row: Any, move: jax.Array) -> jax.Array:
            leaves = jax.tree.leaves(self.function(self.target.space.theta(mode.astype(move.dtype) + move), row))
            return jnp.concatenate([jnp.ravel(leaf).astype(move.dtype) for leaf in leaves])

        return jnp.moveaxis(jax.vmap(lambda row: jax.vmap(lambda move: one(row, move))(moves))(rows), -1, 0)

    def gaussian(self, rows: Any, mode: jax.Array, columns: jax.Array, pairs: jax.Array) -> tuple[Any, Any]:
        return self.read(rows, mode, jnp.concatenate([pairs, -pairs])), None


Kind = Regression | Own


class Sums(NamedTuple):
    """Of a block of rows: the prediction at the mode, then of its difference from that the mean and mean square under
    Laplace with the variance of that mean, and by level mean, mean square and variance of one path's part."""

    centre: Any
    mean: Any
    square: Any
    variance: Any
    level_mean: Any
    level_square: Any
    level_variance: Any


@partial(jax.jit, static_argnums=(0, 1))
def _block(kind: Kind, laplace: bool, rows: Any, mode: Any, columns: Any, pairs: Any, levels: Any) -> Sums:
    """All by (outputs, rows)."""
    centre = kind.read(rows, mode, jnp.zeros((1, len(mode)), mode.dtype))
    mean = square = variance = jnp.zeros_like(centre[..., 0])
    if laplace:
        values, weights = kind.gaussian(rows, mode, columns, pairs)
        difference = values - centre
        mean = jnp.average(difference, axis=2, weights=weights)
        square = jnp.average(difference**2, axis=2, weights=weights)
        if weights is None:
            half = difference.shape[2] // 2
            both = (difference[..., :half] + difference[..., half:]) / 2
            variance = jnp.var(both, axis=2, ddof=1) / half
    parts = []
    for number, moves in enumerate(levels):
        _, count, stops, d = moves.shape
        values = kind.read(rows, mode, moves.reshape(-1, d))
        difference = values - centre.astype(values.dtype)
        alone = number == 0 and not laplace
        first, second = (_beyond(each, count, stops, alone) for each in (difference, difference**2))
        average = jnp.mean(first, axis=2)
        spread = jnp.sum(first**2, axis=2) - count * average**2
        parts.append((average, jnp.mean(second, axis=2), jnp.maximum(spread, 0) / (count - 1)))
    by_level = (jnp.stack(part) for part in zip(*parts, strict=True))
    return Sums(centre[..., 0], mean, square, variance, *by_level)


def _beyond(values: jax.Array, count: int, stops: int, alone: bool) -> jax.Array:
    """What the fine path of each sample has beyond the paths that are taken off it, on average over its stops."""
    sides = jnp.moveaxis(values.reshape(*values.shape[:-1], -1, count, stops).mean(axis=-1), -2, 0)
    return sides[0] if alone else sides[0] - sides[1:].mean(axis=0)


@dataclass(frozen=True, eq=False)
class Predicted:
    """By row and output: posterior mean, posterior sd, and the standard error and remaining bias of the mean."""

    mean: Floats
    sd: Floats
    standard_error: Floats
    bias_bound: Floats


@dataclass(frozen=True, eq=False)
class Predictor:
    """A posterior made ready to predict: how many paths of each level are read, and their ends."""

    posterior: Posterior
    kind: Kind
    levels: tuple[Floats, ...]

    def blocks(self, rows: Any) -> Iterator[Predicted]:
        """Predictions of rows in memory, a pytree of arrays with a leading axis, block by block in order."""
        count = len(jax.tree.leaves(rows)[0])
        points = max(each.size // each.shape[-1] for each in self.levels)
        size = int(np.clip(BLOCK_NUMBERS // points, 1, min(BLOCK_ROWS, 1 << (count - 1).bit_length())))
        for start in range(0, count, size):
            part = jax.tree.map(lambda leaf, start=start: leaf[start : start + size], rows)
            yield self.predict(_padded(part, size), min(size, count - start))

    def all(self, rows: Any) -> Predicted:
        parts = list(self.blocks(rows))
        fields = ("mean", "sd", "standard_error", "bias_bound")
        return Predicted(*(np.concatenate([getattr(part, each) for part in parts]) for each in fields))

    def predict(self, rows: Any, count: int) -> Predicted:
        """Of the first `count` of these rows."""
        posterior, anchor = self.posterior, self.posterior.anchor
        columns = np.diag(anchor.whitening) if anchor.is_diagonal else anchor.whitening.T
        with jax.enable_x64(True):
            sums = _block(self.kind, posterior.laplace, rows, anchor.mode, columns, self._pairs, self.levels)
            sums = Sums(*(np.asarray(part, np.float64) for part in sums))
        return self._conclude(Sums(*(part[..., :count] for part in sums)))

    @property
    def _pairs(self) -> Floats:
        return self.posterior.anchor.draws(1 if self.kind.by_quadrature else GAUSSIAN_PAIRS, self.posterior.seed)

    def _conclude(self, sums: Sums) -> Predicted:
        rungs, levels = self.posterior.rungs, len(self.levels)
        counts = np.array([each.shape[1] for each in self.levels], float)
        shape = sums.centre.shape
        flat = sums.level_variance.reshape(levels, -1)
        variance = floored_variance(flat, counts, rungs.variance_rate, TRUSTED_SAMPLES)
        error = np.sqrt(variance / counts[:, None])
        bias = np.full(flat.shape[1], np.inf)
        if levels >= 3:
            means = np.abs(sums.level_mean.reshape(levels, -1))
            bias = bias_terms(means + 2 * error, rungs.rho).max(axis=0)
        shift = sums.mean + sums.level_mean.sum(axis=0)
        square = sums.square + sums.level_square.sum(axis=0)
        found = (
            sums.centre + shift,
            np.sqrt(np.maximum(square - shift**2, 0.0)),
            np.sqrt(np.sum(error**2, axis=0).reshape(shape) + sums.variance),
            bias.reshape(shape),
        )
        return Predicted(*(np.ascontiguousarray(part.T) for part in found))


def make_predictor(posterior: Posterior, kind: Kind, rows: Any, accuracy: float = ACCURACY) -> Predictor:
    """Choose by a look at some of the rows how many paths to read."""
    count = len(jax.tree.leaves(rows)[0])
    some = np.unique(np.linspace(0, count - 1, min(count, PILOT_ROWS)).astype(int))
    dtype = np.float64 if count <= FEW_ROWS else np.float32
    every = Predictor(posterior, kind, tuple(_ends(posterior, level, dtype) for level in range(len(posterior.points))))
    if count <= FEW_ROWS:
        return every
    pilot = every.all(jax.tree.map(lambda leaf: leaf[some], rows))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num((pilot.standard_error / (accuracy * pilot.sd)) ** 2, posinf=1.0)
    enough = min(1.0, float(np.quantile(share.max(axis=1), 0.9)))
    have = [each.shape[1] for each in every.levels]
    need = [int(np.clip(np.ceil(enough * n), min(LEAST_PATHS, n), n)) for n in have]
    return Predictor(posterior, kind, tuple(each[:, :n] for each, n in zip(every.levels, need, strict=True)))


def _ends(posterior: Posterior, level: int, dtype: Any) -> Floats:
    """Where paths were at their stops, with one draw of the noise each: (1 + coarse paths, paths, stops, d)."""
    quiet = posterior.points[level][:PATHS_READ].astype(np.float64)
    if level == 0:
        # What is taken off there is one path, u, in as many places as other levels have coarse paths.
        quiet = quiet[:, :, :2]
    generator = np.random.default_rng(np.random.SeedSequence([posterior.seed, 9, level]))
    noise = posterior.noise(level, generator.standard_normal((*quiet.shape[:2], 1, quiet.shape[3])))
    return np.ascontiguousarray((quiet + noise).transpose(2, 0, 1, 3), dtype)


def _padded(rows: Any, size: int) -> Any:
    """The last block as long as all others, so that one program serves them."""

    def longer(leaf: Any) -> Any:
        return np.concatenate([leaf, np.repeat(leaf[:1], size - len(leaf), axis=0)]) if len(leaf) < size else leaf

    return jax.tree.map(longer, rows)
