"""Calls of `tb.estimate` for `same_bits`: families, methods, models, questions and executors.

Each function returns calls by name, "part: what"; where a part is a product of choices, it is written as one.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from bits_numbers import bits, leaves
from bits_rows import (
    FORMULA,
    LOOSE,
    NEW_FLIGHTS,
    QUANTITIES,
    constrained,
    flights,
    fresh,
    grouped,
    heavy_tails,
    logistic_by_hand,
    predictors,
    rows_of,
    two_modes,
    weights,
)

import tallbayes as tb

Calls = dict[str, Callable[[], Any]]

BATCH = 5
BUDGET = 1e6


def base(**options: Any) -> tb.Result:
    """Two columns and a yes or no: what most calls ask in one way or another."""
    asked = options if any("tolerance" in name for name in options) else options | {"tolerance": LOOSE}
    return tb.estimate(tb.families.logistic(), rows_of("logistic"), **asked)


@cache
def answered() -> tb.Result:
    return base()


@cache
def fitted() -> tb.Result:
    return tb.fit(FORMULA, flights(), tolerance=LOOSE)


@cache
def loaded() -> tb.Result:
    place = fresh("fitted.tallbayes")
    fitted().save(place)
    return tb.load(place)


def families() -> Calls:
    """Each with an intercept, weights and an offset; then those with other parameters, or without some."""

    def whole(name: str) -> tb.Result:
        options = {"num_classes": 3} if name == "multinomial" else {}
        model = tb.families.FAMILIES[name](prior_scale=1.5, intercept_scale=5.0, **options)
        data = rows_of(name, offset=name != "multinomial")
        return tb.estimate(model, data, tolerance=LOOSE, weights=weights(), max_evaluations=BUDGET)

    def bare(name: str, **options: Any) -> tb.Result:
        return tb.estimate(tb.families.FAMILIES[name](**options), rows_of(name), tolerance=LOOSE)

    variants: dict[str, tuple[str, dict[str, Any]]] = {
        "logistic, a prior by column": ("logistic", {"prior_scale": [0.5, 2.0]}),
        "logistic, a flat prior": ("logistic", {"prior_scale": float("inf")}),
        "linear, known noise": ("linear", {"noise_scale": 0.8}),
        "student_t, known noise": ("student_t", {"noise_scale": 0.8, "degrees_of_freedom": 6.0}),
    }
    calls: Calls = {f"family: {name}": partial(whole, name) for name in tb.families.FAMILIES}
    return calls | {f"family: {what}": partial(bare, name, **each) for what, (name, each) in variants.items()}


def methods() -> Calls:
    anchored = {
        "as it is": {},
        "window": {"window": 4},
        "batch_size": {"batch_size": 4},
        "first_step": {"first_step": 0.5},
        "time": {"time": 4.0},
        "ladder": {"ladder": tb.Ladder(0.5, 6, 5, 2)},
        "float32": {"precision": "float32"},
        "float64": {"precision": "float64"},
        "Blend of Blocks": {"gradient": tb.Blend(4, tb.Blocks())},
        "ControlVariate with a coin": {
            "gradient": tb.ControlVariate(8, tb.WithoutReplacement()),
            "coupling": tb.Synchronous("coin"),
        },
    }
    calls: Calls = {f"method: Anchored, {what}": _by(tb.Anchored, parts) for what, parts in anchored.items()}
    calls |= {f"method: Multilevel, {what}": _by(tb.Multilevel, parts) for what, parts in _papers().items()}
    return calls | {
        "method: Randomised": partial(base, method=tb.Randomised()),
        "method: Randomised, one fixed level": partial(base, method=tb.Randomised(fixed_levels=1)),
        **_baselines(),
    }


def _by(method: Any, parts: dict[str, Any]) -> Callable[[], tb.Result]:
    return lambda: base(method=method(**parts), max_levels=4, max_evaluations=BUDGET)


def _papers() -> dict[str, dict[str, Any]]:
    """Gradients by dynamics, then sampling laws by couplings; two of these are refused, since they do not telescope."""
    gradients = {
        "Full": tb.Full(),
        "Plain": tb.Plain(BATCH),
        "ControlVariate": tb.ControlVariate(BATCH),
        "Taylor": tb.Taylor(BATCH),
        "Blend": tb.Blend(BATCH),
        "Blend with Plain": tb.Blend(BATCH, partner=tb.Plain, radius=2.0),
    }
    samplings = (tb.WithReplacement(), tb.WithoutReplacement(), tb.Blocks())
    couplings = (tb.Antithetic(), tb.Synchronous("union"), tb.Synchronous("coin"))
    whitened = {name: gradients[name] for name in ("Full", "Taylor", "Blend")}
    ladder = tb.Ladder(first_step=0.01, start_steps=12, added_steps=12, window_steps=4)
    return {
        "as it is": {},
        "its own ladder, float64": {"ladder": ladder, "precision": "float64"},
        **{f"{name}, Euler": {"gradient": each} for name, each in gradients.items()},
        **{f"{name}, Exponential": {"gradient": each, "dynamics": tb.Exponential()} for name, each in whitened.items()},
        **{
            f"{sampling}, {coupling}": {"gradient": tb.Taylor(BATCH, sampling), "coupling": coupling}
            for sampling in samplings
            for coupling in couplings
        },
    }


def _baselines() -> Calls:
    asked = tb.families.logistic(), rows_of("logistic")
    steps = {"fixed": 2e-3, "decreasing": tb.baselines.Decreasing(scale=0.01, offset=10.0)}
    calls: Calls = {"method: mala": partial(tb.baselines.mala, *asked, steps=200, burn_in=100, chains=2)}
    return calls | {
        f"method: sgld, a {name} step": partial(
            tb.baselines.sgld, *asked, gradient=tb.Taylor(BATCH), step=step, steps=400, burn_in=40, chains=2
        )
        for name, step in steps.items()
    }


def models() -> Calls:
    """Models of one's own, then the base question in all the ways in which it can be limited."""
    by_hand = partial(tb.estimate, logistic_by_hand(), rows_of("logistic"), tolerance=LOOSE)
    budget = {"max_evaluations": BUDGET}
    calls: Calls = {
        "model: constraints": partial(tb.estimate, *constrained(), QUANTITIES, tolerance=LOOSE, **budget),
        "model: by hand": by_hand,
        "model: by hand, predicted": lambda: by_hand().predict({"x": predictors()[:4]}),
        "model: two modes": partial(tb.estimate, *two_modes(), tolerance=LOOSE, **budget),
        "model: heavy tails": partial(tb.estimate, *heavy_tails(), ("sd",), tolerance=LOOSE, **budget),
        "model: groups": partial(tb.estimate, *grouped(), tolerance=LOOSE, max_evaluations=1e5),
    }
    limits: dict[str, dict[str, Any]] = {
        "the mean alone": {"quantities": ["mean"]},
        "another seed": {"seed": 7},
        "a relative tolerance": {"relative_tolerance": 0.2},
        "an absolute tolerance": {"absolute_tolerance": 0.05},
        "a tolerance by name": {"tolerance": {"mean": 0.1, "sd": 0.3}},
        "a finer tolerance": {"tolerance": 0.05},
        "interval ends": {"tolerance": LOOSE, "interval_tolerance": 0.05},
        "interval ends of Multilevel": {"tolerance": LOOSE, "interval_tolerance": 0.1, "method": tb.Multilevel()},
        "few evaluations": {"tolerance": 0.02, "max_evaluations": 9e3},
        "few levels": {"tolerance": 0.004, "max_levels": 3},
    }
    calls |= {f"asked: {name}": partial(base, **each) for name, each in limits.items()}
    return calls | {
        "asked: no posterior": lambda: _without_posterior(base(keep_posterior=False)),
        "asked: an anchor of before": lambda: base(anchor=answered().anchor, tolerance=0.1),
        "asked: few evaluations, then more": lambda: base(tolerance=0.05, max_evaluations=9e3).extend(),
    }


def _without_posterior(result: tb.Result) -> list[Any]:
    return [result, str(result.posterior)]


def questions() -> Calls:
    """Every question to the result of this process, and to the same one loaded from a file."""
    name = "carrier[T.UA]"
    asked: dict[str, Callable[[tb.Result], Any]] = {
        "quantile": lambda result: result.posterior.quantile([0.05, 0.5, 0.95], name),
        "quantile of all": lambda result: result.posterior.quantile(0.25),
        "quantile of a curve": lambda result: result.posterior.quantile(0.9, lambda theta: jnp.exp(theta["hour"])),
        "interval": lambda result: result.posterior.interval(0.9, {name: 1, "carrier[T.DL]": -1}),
        "probability above": lambda result: result.posterior.probability(name, above=0.3),
        "probability between": lambda result: result.posterior.probability("hour", above=0.05, below=0.1),
        "probability of an event": lambda result: result.posterior.probability(
            lambda theta: (theta[name] > 0.2) & (theta["hour"] > 0.05)
        ),
        "density": lambda result: result.posterior.density(np.linspace(-1, 1, 5), name),
        "expectation": lambda result: result.posterior.expectation(lambda theta: jnp.exp(6 * theta["hour"])),
        "price": lambda result: result.posterior.quantile(0.5, name).price(0.01),
        "draws": lambda result: result.posterior.draws(40),
        "labels": lambda result: result.posterior.labels,
        "coefficients": lambda result: result.coefficients(0.9),
        "ratios": lambda result: result.ratios(),
        "compare categories": lambda result: result.compare("carrier", "UA", "DL"),
        "compare parameters": lambda result: result.compare(name, "hour"),
        "compare rows": lambda result: result.compare({"hour": 8.0, "carrier": "UA"}, {"hour": 20.0, "carrier": "AA"}),
        "predict one row": lambda result: result.predict({"hour": 18.0, "carrier": "UA"}),
        "predict rows": lambda result: result.predict(NEW_FLIGHTS),
        "to_pandas": lambda result: {column: values.to_numpy() for column, values in result.to_pandas().items()},
        "to_datatree": lambda result: {
            group.path: {each: group[each].to_numpy() for each in group.data_vars}
            for group in result.to_datatree(20).subtree
        },
    }
    results = {"this process": fitted, "a file": loaded}
    return {"saved: the whole result": loaded} | {
        f"question: {what} of {where}": partial(_put, question, result)
        for what, question in asked.items()
        for where, result in results.items()
    }


def _put(question: Callable[[tb.Result], Any], result: Callable[[], tb.Result]) -> Any:
    return question(result())


def executors() -> Calls:
    """Whoever runs the blocks, the bits are those of the default."""
    kinds: dict[str, Callable[[], Any]] = {
        "threads": partial(ThreadPoolExecutor, 2),
        "spawned processes": partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("spawn")),
    }
    calls: Calls = {f"executor: {name}": partial(_on, kind) for name, kind in kinds.items()}
    return calls | {
        "executor: the same as the default": lambda: [_bits(_on(each)) == _bits(answered()) for each in kinds.values()]
    }


@cache
def _on(kind: Callable[[], Any]) -> tb.Result:
    with kind() as executor:
        return base(executor=executor)


def _bits(result: tb.Result) -> str:
    return bits(leaves(result))
