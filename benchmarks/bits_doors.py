"""Calls through the other doors for `same_bits`: formulas, scikit-learn, NumPyro, ledgers and tables on disk."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from bits_calls import Calls, answered, base, fitted
from bits_rows import (
    FORMULA,
    LOOSE,
    NEW_FLIGHTS,
    NUM_FLIGHTS,
    flights,
    flights_file,
    folder,
    fresh,
    new_flights_file,
    predictors,
    rows_of,
    weights,
)

import tallbayes as tb
from tallbayes.errors import require_extra


def formulas() -> Calls:
    def asked(formula: str = FORMULA, table: Callable[[], Any] = flights, **options: Any) -> tb.Result:
        return tb.fit(formula, table(), **({"tolerance": LOOSE} | options))

    tables: dict[str, Callable[[], Any]] = {
        "a dict": flights,
        "a pandas frame": _frame,
        "an Arrow table": _arrow,
        "a Parquet file": partial(flights_file, "flights.parquet"),
        "a CSV file": partial(flights_file, "flights.csv"),
    }
    terms = (
        "C(hour > 12) + C(carrier, contr.treatment('UA'))",
        "poly(hour, 2) + np.log(distance)",
        "bs(hour, df=3)",
        "hour + I(hour**2) + scale(distance)",
        "hour * distance",
        "0 + carrier",
    )
    options: dict[str, dict[str, Any]] = {
        "weights": {"weights": "copies"},
        "raw columns": {"standardise": False},
        "a prior by column": {"prior_scale": {"hour": 0.5}, "intercept_scale": 2.0},
        "gaps dropped": {"formula": "late ~ wind + carrier", "missing": "drop"},
        "own quantities": {"quantities": {"gap": lambda theta: theta["carrier[T.UA]"] - theta["carrier[T.DL]"]}},
        "Randomised": {"method": tb.Randomised()},
    }
    families: dict[str, dict[str, Any]] = {
        "student_t": {"formula": "delay ~ hour + carrier", "family_options": {"degrees_of_freedom": 5.0}},
        "poisson": {"formula": "bags ~ hour + carrier", "offset": "exposure", "weights": "copies"},
        "multinomial": {"formula": "gate ~ hour"},
    }
    poisson = cache(partial(asked, family="poisson", **families["poisson"]))
    new = {**NEW_FLIGHTS, "exposure": np.zeros(3)}
    return {
        **{f"formula: {name}": partial(asked, table=table) for name, table in tables.items()},
        **{f"formula: {each}": partial(asked, f"late ~ {each}") for each in terms},
        **{f"formula: {name}": partial(asked, **each) for name, each in options.items()},
        **{f"formula: {name}": partial(asked, family=name, **each) for name, each in families.items()},
        "formula: poisson": poisson,
        "formula: poisson, predicted": lambda: poisson().predict(new, at_least=[1, 3]),
        "formula: predicted into a file": _predicted_into_a_file,
        "formula: extended": lambda: fitted().extend(tolerance=0.1),
        "formula: interval ends": lambda: fitted().extend(interval_tolerance=0.05),
    }


def _frame() -> Any:
    import pandas

    return pandas.DataFrame(flights())


def _arrow() -> Any:
    import pyarrow

    return pyarrow.table(flights())


def _predicted_into_a_file() -> list[Any]:
    place = fresh("predictions.csv")
    return [fitted().predict(new_flights_file(), out=place), table_of(place.read_text())]


def table_of(text: str) -> list[list[Any]]:
    """Words of the heading, numbers of the rows."""
    heading, *rows = csv.reader(text.splitlines())
    return [heading, *([float(cell) for cell in row] for row in rows)]


def estimators() -> Calls:
    """scikit-learn's doors: coefficients with their errors, and what each predicts."""
    x = predictors()

    def fit(make: Callable[..., Any], family: str, **options: Any) -> Any:
        y = rows_of(family)["y"]
        return make(family="logistic" if family == "multinomial" else family, tolerance=LOOSE).fit(x, y, **options)

    def predicted(model: Any) -> list[Any]:
        found = {name: getattr(model, name)(x[:4]) for name in ("predict", "predict_proba") if hasattr(model, name)}
        if isinstance(model, tb.TallRegressor):
            found["predict with its spread"] = model.predict(x[:4], return_std=True)
        return [model, found]

    def hurried() -> list[Any]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = tb.TallClassifier(tolerance=0.02, max_evaluations=9e3).fit(x, rows_of("logistic")["y"])
        return [model, [str(each.message) for each in told if "Convergence" in each.category.__name__]]

    kinds: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
        "TallClassifier": (tb.TallClassifier, "logistic", {}),
        "TallClassifier, weights": (tb.TallClassifier, "logistic", {"sample_weight": weights()}),
        "TallClassifier, three classes": (tb.TallClassifier, "multinomial", {}),
        "TallRegressor": (tb.TallRegressor, "linear", {}),
        "TallCountRegressor": (tb.TallCountRegressor, "poisson", {"offset": weights() / 10}),
    }
    calls: Calls = {
        f"sklearn: {name}": lambda make=make, family=family, options=options: predicted(fit(make, family, **options))
        for name, (make, family, options) in kinds.items()
    }
    return calls | {
        "sklearn: few evaluations": hurried,
        "refusal: sklearn, one class": lambda: tb.TallClassifier().fit(x, np.zeros(len(x))),
        "refusal: sklearn, no such family": lambda: tb.TallRegressor(family="poisson").fit(x, np.zeros(len(x))),
        "refusal: sklearn, not fitted": lambda: tb.TallRegressor().predict(x),
    }


def numpyro_models() -> Calls:
    numpyro = require_extra("numpyro", "bench", "models written in it")
    dist = require_extra("numpyro.distributions", "bench", "models written in it")

    x, y = predictors(), rows_of("linear")["y"]

    def logistic(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)

    def counts(y: Any) -> None:
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    def latent(y: Any) -> None:
        with numpyro.plate("data", len(y)):
            each = numpyro.sample("each", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(each, 1), obs=y)

    def centred(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y - y.mean())

    def asked(program: Callable[..., None], *data: Any) -> tb.Result:
        return tb.estimate(*tb.from_numpyro(program, *data), tolerance=LOOSE)

    return {
        "numpyro: logistic": partial(asked, logistic, x, rows_of("logistic")["y"]),
        "numpyro: counts": partial(asked, counts, rows_of("poisson")["y"]),
        "refusal: numpyro, a latent variable for every row": partial(asked, latent, y),
        "refusal: numpyro, no sum over rows": partial(asked, centred, y),
    }


def ledgers() -> Calls:
    """A run on record: resumed, made finer, merged with another; and one that goes on in memory."""

    def kept(*questions: dict[str, Any]) -> list[Any]:
        place = fresh("run.sqlite")
        return [base(ledger=place, **each) for each in questions]

    def merged() -> list[Any]:
        places = [fresh("first.sqlite"), fresh("second.sqlite")]
        for place, seed in zip(places, (0, 1), strict=True):
            base(ledger=place, seed=seed)
        return [tb.merge_ledgers(*places), base(ledger=places[0], seed=1), base(ledger=places[0], tolerance=0.1)]

    stopped = {"tolerance": 0.05, "max_evaluations": 9e3}
    return {
        "ledger: kept": partial(kept, {}),
        "ledger: resumed": partial(kept, {}, {}),
        "ledger: stopped and resumed": partial(kept, stopped, {"tolerance": 0.05}),
        "ledger: a finer tolerance": partial(kept, {}, {"tolerance": 0.05}),
        "ledger: merged": merged,
        "ledger: extended in memory": lambda: answered().extend(tolerance=0.05),
        "ledger: extended twice": lambda: answered().extend(tolerance=0.1).extend(tolerance=0.05),
    }


def tables() -> Calls:
    """On disk: their bytes, and what is estimated from them."""
    rows = rows_of("logistic") | {"count": weights()}
    model = tb.families.logistic()

    @cache
    def written() -> Path:
        place = fresh("rows.table")
        halves = (slice(0, 50), slice(50, None))
        tb.write_table(place, ({name: array[half] for name, array in rows.items()} for half in halves))
        return place

    @cache
    def ingested() -> Path:
        half = NUM_FLIGHTS // 2
        parts = flights_file("first.csv", end=half), flights_file("second.csv", first=half)
        tb.ingest(list(parts), fresh("flights.table"))
        return folder() / "flights.table"

    def bytes_of(place: Path) -> dict[str, str]:
        return {each.name: sha256(each.read_bytes()).hexdigest() for each in sorted(place.glob("*.bin"))}

    def asked(**options: Any) -> tb.Result:
        return tb.estimate(model, tb.open_table(written()), tolerance=LOOSE, **options)

    return {
        "table: written": lambda: [len(tb.open_table(written())), bytes_of(written())],
        "table: ingested": lambda: [len(tb.open_table(ingested())), bytes_of(ingested())],
        "table: estimate": asked,
        "table: estimate, weights": partial(asked, weights="count"),
        "table: fit": lambda: tb.fit(FORMULA, tb.open_table(ingested()), tolerance=LOOSE),
        "table: fit by its path": lambda: tb.fit(
            "late ~ poly(hour, 2) + scale(distance)", ingested(), tolerance=LOOSE, weights="copies"
        ),
    }
