"""The mean squared distance of a logistic regression's coefficients from their mode, to 3% of its value.

The problem is the paper's: three coefficients, 1,000 rows, prior N(0, I). The truth beside it comes from
quadrature on a grid, which only works because there are three coefficients.
"""

import jax.numpy as jnp
import numpy as np

import tallbayes as tb


def make_rows(num_rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(num_rows, 2)), np.ones(num_rows)])
    chance = 1 / (1 + np.exp(-x @ np.array([0.7, 0.9, -0.1])))
    return {"x": x, "y": (rng.random(num_rows) < chance).astype(float)}


def main() -> None:
    num_rows = 1000
    rows = make_rows(num_rows, seed=1)
    model = tb.families.logistic(prior_scale=1.0)

    print("Posterior means and standard deviations, each to 5% of a posterior sd:\n")
    moments = tb.estimate(model, rows, tolerance=0.05, seed=0)
    print(moments)

    mode = moments.anchor.mode
    print(
        "\n\nThe paper's quantity |theta - mode|^2 to 1/32 of its value, with the paper's antithetic Taylor method:\n"
    )
    distance = tb.estimate(
        model,
        rows,
        {"distance": lambda theta: jnp.sum((theta - mode) ** 2)},
        relative_tolerance=2**-5,
        method=tb.Multilevel(
            gradient=tb.Taylor(batch_size=10),
            coupling=tb.Antithetic(),
            ladder=tb.Ladder(first_step=1 / num_rows, start_steps=18, added_steps=18),
        ),
        anchor=moments.anchor,
    )
    print(distance)


if __name__ == "__main__":
    main()
