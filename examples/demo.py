"""Two estimates on the paper's problem: logistic regression, three coefficients, 1,000 rows, prior N(0, I).

The truth printed at the end comes from quadrature on a grid, which works because there are three coefficients only.
"""

import jax.numpy as jnp

import tallbayes as tb
from tallbayes.experiments.problem import make_rows, reference


def main() -> None:
    rows = make_rows(1000)
    model = tb.families.logistic(prior_scale=1.0)

    print("Posterior means and standard deviations, each to 1% of a posterior sd:\n")
    moments = tb.estimate(model, rows.data, tolerance=0.01, seed=0)
    print(moments)

    mode = moments.anchor.mode
    print("\n\nThe paper's quantity |theta - mode|^2 to 1/32 of its value:\n")
    distance = tb.estimate(
        model,
        rows.data,
        {"distance": lambda theta: jnp.sum((theta - mode) ** 2)},
        relative_tolerance=2**-5,
        anchor=moments.anchor,
    )
    print(distance)
    truth = reference(1000).value
    off = (distance["distance"].value - truth) / truth
    print(f"\ntruth by quadrature: {truth:.5g}; the estimate is off by {off:+.2%}, {2**-5:.2%} was asked for")


if __name__ == "__main__":
    main()
