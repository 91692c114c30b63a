"""Cost to relative accuracy 2^-5 against the number of rows, with fitted exponents.

    cost ~ N^a,   a fitted to log cost over the five data sets, with the standard error of the fit

Cost is counted as in the paper, data items along paths, and beside it with everything: pilots are in both, the set-up
passes (mode and Hessian) only in the second. MALA's cost is what its own error law needs: burn-in plus
steps x msre / 2^-10.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tallbayes.experiments import accuracy, style
from tallbayes.experiments.claims import Claim
from tallbayes.experiments.store import Measurement, numbers

NAME = "scaling"
TITLE = "Cost to relative accuracy 2^-5 against N (the paper's figure 3b)"
NEEDS = (accuracy.NAME,)
TARGET, CONSTANT = 2.0**-5, 5
CUBE, AVERAGED = accuracy.METHODS
FIXED = f"antithetic + Taylor with n = {CONSTANT}"
LABELS = {CUBE: f"{CUBE}, n = N^(1/3)", AVERAGED: f"{AVERAGED}, n = N^(1/3)", FIXED: FIXED, "MALA": "MALA"}


def pieces(quick: bool) -> dict[str, Measurement]:
    sizes, repeats = ((100, 1000), 8) if quick else ((100, 316, 1000, 3162, 10000), 50)
    return {
        f"{FIXED}, N = {num_rows}": Measurement(
            {
                "num_rows": num_rows,
                "n": CONSTANT,
                "m": accuracy.STEPS,
                "repeats": repeats,
                "seeds": f"0..{repeats - 1}",
            },
            partial(accuracy.run_multilevel, num_rows, CONSTANT, 0, (10,), repeats),
        )
        for num_rows in sizes
    }


def costs(results: dict[str, Any], method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, path costs, and costs with the set-up, at the finest accuracy of each piece."""
    sizes = np.array(numbers(results))
    path, whole = [], []
    for size in sizes:
        point = results[f"{method}, N = {size}"]["points"][-1]
        setup = results[f"{CUBE}, N = {size}"]["setup_evaluations"]
        items = point["evaluations"]
        if method == "MALA":
            kept = point["steps"] - accuracy.BURN_IN
            items = size * (accuracy.BURN_IN + kept * point["msre"] / TARGET**2)
        path.append(items)
        whole.append(items + setup)
    return sizes, np.array(path), np.array(whole)


def exponent(sizes: np.ndarray, cost: np.ndarray) -> tuple[float, float]:
    """a of cost ~ N^a and its standard error from the scatter about the line."""
    x, y = np.log(sizes), np.log(cost)
    x = x - x.mean()
    slope = x @ y / (x @ x)
    if len(sizes) < 3:
        return float(slope), float("nan")
    rest = y - y.mean() - slope * x
    return float(slope), float(np.sqrt(rest @ rest / (len(x) - 2) / (x @ x)))


def draw(results: dict[str, Any]) -> Any:
    figure, axes = style.new_figure(2, height=4.4)
    for number, (method, name) in enumerate(LABELS.items()):
        sizes, path, whole = costs(results, method)
        slope, error = exponent(sizes, path)
        label = f"{name}: N^({slope:.2f} ± {error:.2f})"
        axes[0].loglog(sizes, path, label=label, **style.mark(number))
        axes[1].loglog(sizes, whole, **style.mark(number))
    axes[0].set(title="data items of the paths", xlabel="N", ylabel="cost to relative accuracy 2^-5")
    axes[1].set(title="with the set-up passes", xlabel="N")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def claims(results: dict[str, Any]) -> list[Claim]:
    def grown(method: str, whole: bool = False) -> str:
        sizes, path, everything = costs(results, method)
        slope, error = exponent(sizes, everything if whole else path)
        return f"{slope:.2f} +- {error:.2f}"

    sizes, mala, _ = costs(results, "MALA")
    _, ours, _ = costs(results, CUBE)
    _, windowed, _ = costs(results, AVERAGED)
    gains = ours / windowed
    averaging = "holds" if gains.min() > 1 else "does not hold" if gains.max() < 1 else "holds for some N only"
    return [
        Claim(
            "abstract, 4.2",
            "Cost to a given relative accuracy grows more slowly than N.",
            f"exponents: {grown(CUBE)} with n = N^(1/3), {grown(AVERAGED)} with averaging, {grown(FIXED)} with "
            f"n = {CONSTANT}, MALA {grown('MALA')}; with the set-up passes {grown(CUBE, True)}, "
            f"{grown(AVERAGED, True)}, {grown(FIXED, True)}",
            "holds; n need not grow with N, and then cost hardly grows at all",
            NAME,
        ),
        Claim(
            "4.2",
            "Averaging behaves slightly better than end points alone.",
            f"end points cost {gains.min():.2f} to {gains.max():.2f} times what averages do; with m = 5 the window "
            "reaches back to where paths still remember their start",
            averaging + " at m = 5",
            NAME,
        ),
        Claim(
            "4.2",
            "The multilevel method is competitive with MALA.",
            f"cost of MALA / antithetic + Taylor to 2^-5: {mala[0] / ours[0]:.2g} at N = {sizes[0]}, "
            f"{mala[-1] / ours[-1]:.2g} at N = {sizes[-1]:,}",
            "holds for large N; MALA is cheaper for small N" if mala[0] < ours[0] else "holds",
            NAME,
        ),
    ]
