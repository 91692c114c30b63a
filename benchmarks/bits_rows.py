"""Small tables and models for `same_bits`: of fixed seeds, written into one folder that goes when the process ends.

Questions that share shapes share compiled programs, which is where the time goes: most rows have two columns, and most
formulas three terms.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallbayes as tb

NUM_ROWS = 90
NUM_FLIGHTS = 240
LOOSE = 0.2
FORMULA = "late ~ hour + carrier"


@cache
def folder() -> Path:
    place = Path(tempfile.mkdtemp(prefix="same-bits-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def fresh(name: str) -> Path:
    """A place in the folder where nothing is."""
    place = folder() / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    return place


@cache
def predictors() -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.column_stack([rng.normal(size=NUM_ROWS), rng.uniform(-1, 1, NUM_ROWS)])


@cache
def weights() -> np.ndarray:
    return np.random.default_rng(12).uniform(0.5, 2.0, NUM_ROWS)


@cache
def rows_of(family: str, offset: bool = False) -> dict[str, np.ndarray]:
    """Rows of two columns with a response that the family takes."""
    rng = np.random.default_rng(13)
    x = predictors()
    eta = x @ [0.8, -0.5] + 0.2
    noise = rng.standard_t(4, NUM_ROWS)
    response = {
        "logistic": (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-eta))).astype(float),
        "linear": eta + 0.7 * noise,
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "negative_binomial": rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, NUM_ROWS)).astype(float),
        "multinomial": rng.integers(0, 3, NUM_ROWS).astype(float),
    }
    alike = {"probit": "logistic", "student_t": "linear"}
    rows = {"x": x, "y": response[alike.get(family, family)]}
    return rows | ({"offset": rng.uniform(-0.3, 0.3, NUM_ROWS)} if offset else {})


@cache
def flights() -> dict[str, np.ndarray]:
    """A table with a category, a count, a class, weights, an exposure and a column with gaps."""
    rng = np.random.default_rng(14)
    hour = rng.integers(0, 24, NUM_FLIGHTS).astype(float)
    distance = rng.uniform(100.0, 900.0, NUM_FLIGHTS)
    carrier = np.array(["AA", "DL", "UA"])[rng.integers(0, 3, NUM_FLIGHTS)]
    eta = 0.08 * (hour - 12) + 0.5 * (carrier == "UA") - 0.001 * (distance - 500)
    gaps = np.where(rng.random(NUM_FLIGHTS) < 0.1, np.nan, rng.normal(size=NUM_FLIGHTS))
    return {
        "late": rng.random(NUM_FLIGHTS) < 1 / (1 + np.exp(-eta)),
        "delay": 10 * eta + 5 * rng.normal(size=NUM_FLIGHTS),
        "bags": rng.poisson(np.exp(0.5 * eta)),
        "gate": np.array(["a", "b", "c"])[rng.integers(0, 3, NUM_FLIGHTS)],
        "hour": hour,
        "distance": distance,
        "carrier": carrier,
        "copies": rng.integers(1, 4, NUM_FLIGHTS).astype(float),
        "exposure": rng.uniform(-0.2, 0.2, NUM_FLIGHTS),
        "wind": gaps,
    }


NEW_FLIGHTS = {"hour": np.array([6.0, 12.0, 21.0]), "carrier": np.array(["UA", "AA", "DL"])}


@cache
def flights_file(name: str, first: int = 0, end: int = NUM_FLIGHTS) -> Path:
    """Rows of the table as a file of the kind that its name ends in."""
    import pandas

    place = folder() / name
    frame = pandas.DataFrame({column: values[first:end] for column, values in flights().items()})
    if place.suffix == ".parquet":
        frame.to_parquet(place)
    else:
        frame.to_csv(place, index=False)
    return place


@cache
def new_flights_file() -> Path:
    import pandas

    place = folder() / "tomorrow.csv"
    pandas.DataFrame(NEW_FLIGHTS).to_csv(place, index=False)
    return place


@cache
def constrained() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """Every constraint at once, in parameters that are dicts within a dict."""
    rng = np.random.default_rng(15)
    data = {
        "y": rng.normal(0.5, 1.5, NUM_ROWS),
        "kind": rng.integers(0, 3, NUM_ROWS).astype(np.int32),
        "hit": (rng.random(NUM_ROWS) < 0.3).astype(float),
        "pair": rng.normal([-1.0, 1.0], 0.5, (NUM_ROWS, 2)),
        "angle": rng.normal(0.4, 1.0, NUM_ROWS),
    }

    def log_prior(theta: Any) -> Any:
        place = theta["place"]
        return -0.5 * (place["location"] / 5) ** 2 - 0.5 * place["scale"] ** 2 - 0.5 * jnp.sum((theta["cuts"] / 3) ** 2)

    def log_likelihood(theta: Any, row: Any) -> Any:
        place = theta["place"]
        noise = -0.5 * ((row["y"] - place["location"]) / place["scale"]) ** 2 - jnp.log(place["scale"])
        hit = row["hit"] * jnp.log(theta["chance"]) + (1 - row["hit"]) * jnp.log1p(-theta["chance"])
        pair = -2.0 * jnp.sum((row["pair"] - theta["cuts"]) ** 2)
        return noise + jnp.log(theta["shares"][row["kind"]]) + hit + pair - 0.5 * (row["angle"] - theta["angle"]) ** 2

    initial = {
        "place": {"location": 0.0, "scale": 1.0},
        "shares": np.full(3, 1 / 3),
        "chance": 0.5,
        "cuts": np.array([-0.5, 0.5]),
        "angle": 0.5,
    }
    constraints = {
        "place": {"scale": tb.constraints.positive},
        "shares": tb.constraints.simplex,
        "chance": tb.constraints.unit_interval,
        "cuts": tb.constraints.ordered,
        "angle": tb.constraints.interval(-1.0, 2.0),
    }
    return tb.Model(log_prior, log_likelihood, initial, constraints=constraints), data


QUANTITIES = {
    "mean": "mean",
    "sd": "sd",
    "high": lambda theta: theta["place"]["location"] > 0.4,
    "ratio": lambda theta: {"odds": theta["chance"] / (1 - theta["chance"]), "top": theta["shares"].max()},
}


def logistic_by_hand() -> tb.Model:
    """Without the cheap form of a family, but with a prediction."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta
        return row["y"] * eta - jax.nn.softplus(eta)

    return tb.Model(
        lambda theta: -0.5 * jnp.sum(theta**2),
        log_likelihood,
        np.zeros(2),
        predict=lambda theta, row: jax.nn.sigmoid(row["x"] @ theta),
    )


def two_modes() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """Two Gaussians eight sds apart, seven tenths of the mass in the first."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        first = jnp.log(0.7) - 0.5 * theta**2
        return jnp.logaddexp(first, jnp.log(0.3) - 0.5 * (theta - 8.0) ** 2) + 0.0 * row["y"]

    return tb.Model(lambda theta: -0.5 * (theta / 50) ** 2, log_likelihood, 0.0), {"y": np.zeros(1)}


def heavy_tails() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """A location under Student's t with three degrees of freedom: its fourth moment does not exist."""
    model = tb.Model(
        lambda theta: 0.0 * theta, lambda theta, row: -2.0 * jnp.log1p((row["y"] - theta) ** 2 / 3), initial=0.0
    )
    return model, {"y": np.ones(1)}


def grouped() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """Effects of four groups whose spread is unknown: the mass is far from the mode."""
    rng = np.random.default_rng(16)
    group = np.repeat(np.arange(4, dtype=np.int32), 6)
    model = tb.Model(
        lambda theta: -0.5 * jnp.sum(theta["effect"] ** 2) - 0.5 * theta["scale"] ** 2,
        lambda theta, row: -0.5 * (row["y"] - theta["scale"] * theta["effect"][row["group"]]) ** 2,
        initial={"scale": 1.0, "effect": np.zeros(4)},
        constraints={"scale": tb.constraints.positive},
    )
    return model, {"group": group, "y": 0.7 * rng.normal(size=4)[group] + rng.normal(size=24)}
