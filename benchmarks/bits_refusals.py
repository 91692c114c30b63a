"""Bad input for `same_bits`: what is asked, how it is asked, and what is asked of results, files and doors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from bits_calls import Calls, answered, base, fitted, loaded
from bits_rows import FORMULA, LOOSE, NEW_FLIGHTS, NUM_ROWS, flights, folder, fresh, logistic_by_hand, rows_of, weights

import tallbayes as tb


def refusals() -> Calls:
    """Bad input: the type of the error and its message are the answer."""
    return {f"refusal: {name}": call for name, call in {**_bad_questions(), **_bad_methods(), **_bad_later()}.items()}


def _bad_questions() -> Calls:
    rows = rows_of("logistic")
    spoiled = rows["x"].copy()
    spoiled[7, 0] = np.nan

    def asked(model: Any = None, data: Any = rows, quantities: Any = None, **options: Any) -> Any:
        model = tb.families.logistic() if model is None else model
        return tb.estimate(model, data, quantities, **({"tolerance": LOOSE} | options))

    def written(log_likelihood: Any = lambda theta, row: -((row["y"] - theta) ** 2), **parts: Any) -> tb.Model:
        return tb.Model(lambda theta: -jnp.sum(theta**2), log_likelihood, **({"initial": 0.0} | parts))

    separable = {"x": np.arange(-5.0, 5.0)[:, None], "y": (np.arange(-5.0, 5.0) >= 0).astype(float)}
    data = {
        "x is not a number": rows | {"x": spoiled},
        "y is not 0 or 1": rows | {"y": 2 * rows["y"] - 1},
        "lengths differ": rows | {"y": rows["y"][:-1]},
        "x of one dimension": rows | {"x": rows["x"][:, 0]},
        "no y": {"x": rows["x"]},
        "no rows": {"x": np.zeros((0, 2)), "y": np.zeros(0)},
        "words": rows | {"y": np.full(NUM_ROWS, "yes")},
    }
    options: dict[str, dict[str, Any]] = {
        "no tolerance": {"tolerance": None},
        "two tolerances": {"absolute_tolerance": 0.1},
        "a tolerance below 0": {"tolerance": -0.1},
        "tolerances by other names": {"tolerance": {"means": 0.1}},
        "a seed below 0": {"seed": -1},
        "no budget": {"max_evaluations": 0},
        "a budget below the first look": {"max_evaluations": 100},
        "two levels": {"max_levels": 2},
        "a method by name": {"method": "multilevel"},
        "weights below 0": {"weights": np.full(NUM_ROWS, -1.0)},
        "weights of other rows": {"weights": np.ones(3)},
        "an anchor that is none": {"anchor": np.zeros(2)},
        "an unknown quantity": {"quantities": ("mean", "median")},
        "a quantity of none": {"quantities": {"nothing": lambda theta: None}},
        "a quantity that is not a number": {"quantities": {"root": lambda theta: theta * jnp.nan}},
        "interval ends without a posterior": {"interval_tolerance": 0.1, "keep_posterior": False},
        "a jump for Randomised": {"quantities": {"up": lambda theta: theta[0] > 0}, "method": tb.Randomised()},
        "a batch of more rows": {"method": tb.Multilevel(gradient=tb.Taylor(NUM_ROWS + 1, tb.Blocks()))},
    }
    models: dict[str, Callable[[], tb.Model]] = {
        "a prior scale of 0": lambda: tb.families.logistic(prior_scale=0.0),
        "one class": lambda: tb.families.multinomial(1),
        "a vector for a likelihood": lambda: written(lambda theta, row: row["x"] * theta),
        "a column that is not there": lambda: written(lambda theta, row: row["z"]),
        "a start outside of its constraint": lambda: written(constraints=tb.constraints.positive),
        "bounds that cross": lambda: written(constraints=tb.constraints.interval(1.0, 0.0)),
        "a word for a start": lambda: written(initial="zeros"),
    }
    return {
        **{name: partial(asked, data=each) for name, each in data.items()},
        **{name: partial(asked, **each) for name, each in options.items()},
        **{name: partial(_asked_of, asked, make) for name, make in models.items()},
        "no mode": partial(asked, tb.families.logistic(prior_scale=float("inf")), separable, method=tb.Multilevel()),
        "offsets of classes": partial(
            asked, tb.families.multinomial(3), rows_of("multinomial") | {"offset": weights()}
        ),
    }


def _asked_of(asked: Callable[..., Any], make: Callable[[], tb.Model]) -> Any:
    return asked(make())


def _bad_methods() -> Calls:
    return {
        "an unwhitened Anchored": lambda: tb.Anchored(dynamics=tb.Euler()),
        "two batch sizes": lambda: tb.Anchored(gradient=tb.Taylor(4), batch_size=4),
        "two ladders": lambda: tb.Anchored(ladder=tb.Ladder(0.5), window=4),
        "a window of 257": lambda: tb.Anchored(window=257),
        "a precision of 16": lambda: tb.Anchored(precision="float16"),
        "a coupling that is a class": lambda: tb.Multilevel(coupling=tb.Antithetic),
        "a pick of both": lambda: tb.Synchronous("both"),
        "no batch": lambda: tb.Taylor(0),
        "a partner that is none": lambda: tb.Blend(4, partner=tb.Full),
        "a window longer than its path": lambda: tb.Ladder(0.1, start_steps=3, window_steps=4),
        "a step of 0": lambda: tb.Ladder(0.0),
        "a slow coupling for Randomised": lambda: tb.Randomised(tb.Anchored(coupling=tb.Synchronous("coin"))),
        "Randomised of Multilevel": lambda: tb.Randomised(tb.Multilevel()),
        "a bound of 0": lambda: tb.Exponential(bound=0.0),
        "a step of sgld": lambda: tb.baselines.sgld(
            tb.families.logistic(), rows_of("logistic"), gradient=tb.Taylor(4), step=-1.0, steps=100
        ),
        "no such name": lambda: tb.Unknown,
    }


def _bad_later() -> Calls:
    """Of results, tables, ledgers, files and doors."""
    result, posterior = fitted, lambda: fitted().posterior
    other = rows_of("logistic") | {"y": 1 - rows_of("logistic")["y"]}

    def of(formula: str = FORMULA, **options: Any) -> tb.Result:
        return tb.fit(formula, flights(), **({"tolerance": LOOSE} | options))

    def of_another_problem() -> tb.Result:
        place = fresh("one.sqlite")
        base(ledger=place)
        return tb.estimate(tb.families.logistic(), other, tolerance=LOOSE, ledger=place)

    def of_a_torn_file(name: str, read: Callable[[Any], Any]) -> Any:
        place = fresh(name)
        place.write_bytes(b"torn" * 500)
        return read(place)

    return {
        "a quantile of 2": lambda: posterior().quantile(2.0),
        "an interval of all": lambda: posterior().interval(1.0),
        "a number for an event": lambda: posterior().probability("hour"),
        "bounds that cross for a probability": lambda: posterior().probability("hour", above=1.0, below=0.0),
        "a density of several": lambda: posterior().density([0.0], None),
        "no such parameter": lambda: posterior().quantile(0.5, "minute"),
        "compare with itself": lambda: result().compare("hour", "hour"),
        "compare a category that is none": lambda: result().compare("carrier", "UA", "LH"),
        "compare one thing": lambda: result().compare("hour"),
        "ratios of a model by hand": lambda: tb.estimate(
            logistic_by_hand(), rows_of("logistic"), tolerance=LOOSE
        ).ratios(),
        "predict without a column": lambda: result().predict({"hour": [1.0]}),
        "predict a category that is none": lambda: result().predict({"hour": [1.0], "carrier": ["LH"]}),
        "predict other columns": lambda: answered().predict(np.ones((2, 3))),
        "at_least of a class": lambda: result().predict(NEW_FLIGHTS, at_least=1),
        "price of an estimate": lambda: result()["mean"].price(0.1),
        "extend what was loaded": lambda: loaded().extend(tolerance=0.1),
        "extend by another name": lambda: answered().extend(tolerances=0.1),
        "no such result": lambda: tb.load(folder() / "nothing.tallbayes"),
        "a torn result": lambda: of_a_torn_file("torn.tallbayes", tb.load),
        "a torn ledger": lambda: of_a_torn_file("torn.sqlite", lambda place: base(ledger=place)),
        "a ledger of another problem": of_another_problem,
        "no such table": lambda: tb.open_table(folder() / "nothing.table"),
        "a table of nothing": lambda: tb.write_table(fresh("none.table"), iter(())),
        "ingest of nothing": lambda: tb.ingest(folder() / "absent" / "nothing-*.csv", fresh("none.table")),
        "no such column": lambda: of("late ~ hours"),
        "no such family": lambda: of(family="logit"),
        "no such option": lambda: of(toleranse=0.1),
        "a formula without a response": lambda: of("hour + carrier"),
        "a prior of no column": lambda: of(prior_scale={"minute": 1.0}),
        "a count for a yes or no": lambda: of("distance ~ hour"),
        "gaps": lambda: of("late ~ wind"),
        "no such file": lambda: tb.fit(FORMULA, folder() / "absent" / "nothing.csv", tolerance=LOOSE),
        "weights of no column": lambda: of(weights="copied"),
    }
