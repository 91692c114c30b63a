"""Results by hand, whose numbers are known, for the tests of reports: every family, shape and mishap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimation.outline import blank
from tallbayes.estimator.decisions import Trial, Tuning
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.rates import Contraction
from tallbayes.posterior.coordinates import Part, Reading
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Prediction
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.coefficients import Number
from tallbayes.results.comparisons import Comparison
from tallbayes.results.parts import Cost, Level, Mode, Rates, Regression
from tallbayes.results.result import Result
from tallbayes.structure import Structure
from tallbayes.views.report import render_report

HOSTILE = "<b>&\"'x</b>"
CARRIERS = ("AA", "EV", HOSTILE, "UA")
NAN, INF = float("nan"), float("inf")


def structure_of(names: list[str]) -> Structure:
    return Structure.container("dict", [(name, Structure.leaf(())) for name in names])


def posterior_of(structure: Structure, mean: np.ndarray, sd: np.ndarray, num_levels: int = 4) -> Posterior:
    """A Gaussian, and paths that add next to nothing to it."""
    size, rng = len(mean), np.random.default_rng(0)
    points = []
    for level in range(num_levels):
        common = 0.6 * sd * rng.standard_normal((32, 1, 1, size))
        points.append((common + 0.05 * 0.4**level * sd * rng.standard_normal((32, 1, 3, size))).astype(np.float32))
    zeros = np.zeros(size)
    anchor = Anchor(mean, zeros, np.diag(sd**-2.0), np.diag(sd**-2.0), 0.0, 1.0, 1000, zeros)
    return Posterior(
        anchor=anchor,
        points=tuple(points),
        spreads=tuple([0.8, 0.7, 0.6, 0.5][:num_levels]),
        whitened=True,
        laplace=True,
        rungs=Rungs(0.2, 2.0, 10.0 * 2.0 ** np.arange(num_levels)),
        stored=Reading(structure, (Part("real", (), (size,)),)),
    )


def estimate_of(name: str, structure: Structure, value: np.ndarray, sd: np.ndarray, tolerance: float) -> Estimate:
    count = len(value)
    return Estimate(name, structure, value, 0.01 * sd, 0.005 * sd, np.full(count, 40.0), tolerance * sd)


def level_of(number: int, count: int, names: tuple[str, ...]) -> Level:
    part = np.full(count, 4.0**-number)
    every = dict.fromkeys(names, part)
    scores = {name: np.full(count, NAN if number == 0 else 1.5) for name in names}
    return Level(
        0.5**number, 3.0 * (number + 1), 640 // 2**number, 1000, every, every, dict.fromkeys(names, 3 + part), scores
    )


def made(
    names: list[str],
    mean: np.ndarray | None = None,
    sd: np.ndarray | None = None,
    family: str | None = None,
    encoding: Any = None,
    kept: bool = True,
    num_levels: int = 4,
    structure: Structure | None = None,
    tolerance: float = 0.05,
    **changes: Any,
) -> Result:
    """A converged result with these parameters."""
    structure = structure or structure_of(names)
    mean = np.linspace(-0.6, 0.9, len(names)) if mean is None else mean
    sd = np.full(len(names), 0.1) if sd is None else sd
    names_of = ("mean", "sd")
    known = num_levels >= 3
    trial = Trial(1.0, 4, 1e4, 0.01, 640)
    result = Result(
        estimates={
            "mean": estimate_of("mean", structure, mean, sd, tolerance),
            "sd": estimate_of("sd", structure, sd, sd, tolerance),
        },
        status=Status.converged,
        levels=tuple(level_of(number, len(names), names_of) for number in range(num_levels)),
        rates=Rates(*(dict.fromkeys(names_of, rate if known else NAN) for rate in (1.1, 2.0, 1.4))),
        cost=Cost(12_345, 67_890, 0, 1000, 1.5),
        contraction=Contraction(0.05, 0.07, 1.2),
        anchor=None,
        method="Anchored(Taylor(batch_size=4))",
        settings={"seed": 7, "tolerance": tolerance, "versions": {"tallbayes": "0.1.0"}},
        tuning=Tuning((trial, replace(trial, price=INF, first_step=0.5)), trial, 2.5, "it suffices", 1280),
        notes=("prior: N(0, 1)", "a < b & c"),
        posterior=posterior_of(structure, mean, sd, num_levels) if kept else None,
        encoding=encoding,
        regression=None if family is None else Regression(family, 1, True, 0),
    )
    return replace(result, **changes)


def encoding_of(names: list[str], categories: dict[str, list[str]], classes: list[Any] | None = None) -> Any:
    coding = {"right": "a + b", "names": names, "categories": {"items": [list(each) for each in categories.items()]}}
    return {"response": "late & <lost>", "coding": coding, "classes": classes, "response_mean": 0.0}


def regression(family: str, extra: tuple[str, ...] = (), **changes: Any) -> Result:
    columns = ["hour", *(f"carrier[T.{each}]" for each in CARRIERS[1:])]
    encoding = encoding_of(columns, {"carrier": list(CARRIERS)}, [False, True] if family == "logistic" else None)
    return made(["Intercept", *columns, *extra], family=family, encoding=encoding, **changes)


def multinomial() -> Result:
    columns = ["hour", *(f"carrier[T.{each}]" for each in CARRIERS[1:])]
    encoding = encoding_of(columns, {"carrier": list(CARRIERS)}, ["on time", "late.", "gone"])
    one = structure_of(["Intercept", *columns])
    both = Structure.container("dict", [("late.", one), ("gone", one)])
    names = [label.removeprefix(".") for label in both.labels("")]
    return made(names, family="multinomial", encoding=encoding, structure=both)


def with_quantities(result: Result, keep: bool = True) -> Result:
    """With quantities of the user's own beside mean and sd, or instead of them."""
    number, pair = Structure.leaf(()), Structure.leaf((2,))
    own = {
        "odds & <ends>": estimate_of("odds & <ends>", number, np.array([1.25]), np.array([0.2]), 0.05),
        "pair": estimate_of("pair", pair, np.array([3.0, 4.0]), np.array([0.2, 0.3]), 0.001),
    }
    size = {"odds & <ends>": 1, "pair": 2}
    levels = []
    for number_of, level in enumerate(result.levels):
        blank = {name: level_of(number_of, size[name], (name,)) for name in own}
        parts = {
            part: (getattr(level, part) if keep else {}) | {name: getattr(blank[name], part)[name] for name in own}
            for part in ("mean", "variance", "kurtosis", "consistency")
        }
        levels.append(replace(level, **parts))
    estimates = (result.estimates if keep else {}) | own
    rates = Rates(*(dict.fromkeys(estimates, rate) for rate in (1.0, 1.9, 1.4)))
    return replace(result, estimates=estimates, levels=tuple(levels), rates=rates)


def without_numbers() -> Result:
    """What is left of a run whose paths diverged."""
    result = made(["a", "b"], kept=False, status=Status.diverged)
    nothing = {
        name: replace(each, flat_value=np.array([NAN, 1.0]), flat_standard_error=np.array([NAN, INF]))
        for name, each in result.estimates.items()
    }
    lost = {name: np.array([NAN, INF]) for name in nothing}
    levels = tuple(replace(level, mean=lost, variance=lost, kurtosis=lost) for level in result.levels)
    return replace(result, estimates=nothing, levels=levels, contraction=Contraction(INF, INF, -INF))


def with_modes(result: Result, status: Status = Status.second_mode) -> Result:
    """Beside others: one that was answered, one whose answer ran out of time, and one that was not answered."""
    mean, sd = result["mean"], result["sd"]
    moved = replace(result, estimates={"mean": replace(mean, flat_value=mean.flat_value + 5), "sd": sd})
    answers = replace(moved, status=Status.second_mode), replace(moved, status=Status.max_seconds), None
    modes = [
        Mode(share, mean.structure, mean.flat_value + 5, sd.flat_value, answer, "" if answer else "it is <too> light")
        for share, answer in zip((0.25, 0.1, 0.0004), answers, strict=True)
    ]
    return replace(result, status=status, modes=tuple(modes))


def outlined(value: float) -> Result:
    """What is left of a run that ended before its first paths: the Gaussian's answer, or none."""
    result = made(["a", HOSTILE], kept=False, num_levels=0, status=Status.max_seconds, contraction=None, tuning=None)
    unknown = {field: np.full(2, INF) for field in ("flat_standard_error", "flat_bias_bound")}
    estimates = {
        name: replace(each, flat_value=np.full(2, value), flat_freedom=np.full(2, NAN), **unknown)
        for name, each in result.estimates.items()
    }
    return replace(result, estimates=estimates, cost=Cost(0, 300, 0, 1000, 0.5))


def without_variance() -> Result:
    """One number of three has no error that could be known."""
    result = with_quantities(made(["a"]), keep=False)
    lost = replace(result["odds & <ends>"], flat_standard_error=np.array([INF]))
    return replace(result, status=Status.infinite_variance, estimates=result.estimates | {lost.name: lost})


ARRAY = Structure.leaf((2, 2))
MANY = [f"region[T.r{number:03d}]" for number in range(150)] + [f"column {number}" for number in range(50)]
RESULTS = {
    "logistic": lambda: regression("logistic"),
    "probit": lambda: regression("probit"),
    "poisson": lambda: regression("poisson"),
    "linear": lambda: regression("linear", ("noise_scale",)),
    "negative binomial": lambda: regression("negative_binomial", ("overdispersion",)),
    "multinomial": multinomial,
    "an array": lambda: made(list(ARRAY.labels("")), structure=ARRAY),
    "a dict": lambda: made(["location", "scale"]),
    "quantities beside": lambda: with_quantities(made(["location", "scale"])),
    "quantities instead": lambda: with_quantities(made(["location", "scale"]), keep=False),
    "nothing but quantities": lambda: with_quantities(made(["location"], kept=False), keep=False),
    "no posterior": lambda: regression("logistic", kept=False),
    "one parameter": lambda: made(["only"]),
    "an intercept alone": lambda: made(["Intercept"], family="logistic", encoding=encoding_of([], {}, [0, 1])),
    "two hundred": lambda: made(MANY, np.random.default_rng(1).normal(0, 0.3, 200), family="logistic"),
    "one level": lambda: out_of_levels(1),
    "two levels": lambda: out_of_levels(2),
    "no numbers": without_numbers,
    "randomised": lambda: regression("logistic", kept=False, method="Randomised(Anchored())", random_tail=True),
    "long names": lambda: made(["word_" * 30, "列" * 60, "W" * 90, "n o t " * 20], family="poisson"),
    "odd sizes": lambda: odd_sizes("logistic"),
    "odd sizes of a linear one": lambda: odd_sizes("linear"),
    "several modes": lambda: with_modes(regression("logistic")),
    "several modes of one number": lambda: with_modes(made([""], structure=Structure.leaf(()))),
    "several modes and no posterior": lambda: with_modes(made(MANY, kept=False), Status.paths_too_short),
    "the Gaussian alone": lambda: outlined(0.25),
    "no number yet": lambda: outlined(NAN),
    "no row yet": lambda: blank(Status.max_seconds, ["mean", "sd"], {"tolerance": 0.05}, "", 0.0, None),
    "no variance": without_variance,
    "nothing tuned": lambda: regression("linear", tuning=None, notes=(), settings={}),
}


def odd_sizes(family: str) -> Result:
    """From very small to very large, and known from hardly to very well."""
    mean = np.array([1e-7, -3e-5, 40.0, -800.0, 1e9, 0.3, 0.0])
    sd = np.array([1e-9, 1e-4, 1e-3, 90.0, 2e7, 5.0, 1e-12])
    return made([f"x{number}" for number in range(len(mean))], mean, sd, family=family)


def out_of_levels(num_levels: int) -> Result:
    """Too few of them to bound the bias."""
    result = regression("logistic", num_levels=num_levels, status=Status.max_evaluations)
    estimates = {
        name: replace(each, flat_bias_bound=np.full(each.structure.size, INF))
        for name, each in result.estimates.items()
    }
    return replace(result, estimates=estimates)


PREDICTIONS = [
    (f"flight {HOSTILE}", Prediction(*(np.array([each]) for each in (0.25, 0.02, 3e-4, 4e-4, 2e-4, 1e-4)))),
    (
        "classes",
        Prediction(
            *(np.full((1, 2), each) for each in (0.5, 0.1, 0.01, 0.0, 0.002, 0.0)), classes=("on time", HOSTILE)
        ),
    ),
    ("rows", Prediction(*(np.full(30, each) for each in (0.75, 0.1, 0.01, 0.0, 0.002, 0.0)))),
]
COMPARISONS = [
    Comparison(
        "EV", HOSTILE, *[Number(each, 0.001) for each in (0.7, 0.1, 0.7, 0.5, 0.9)], Number(0.98, 0.002), "odds ratio"
    ),
    Comparison("a", "b", *[Number(each, 0.001) for each in (0.7, 0.1, 0.7, 0.5, 0.9)], Number(1.0, 0.0), None),
]


def all_pages() -> dict[str, str]:
    """A page of every result, with predictions and comparisons on each."""
    return {name: render_report(make(), PREDICTIONS, COMPARISONS) for name, make in RESULTS.items()}
