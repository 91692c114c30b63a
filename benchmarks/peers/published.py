"""What others publish of wide posteriors, which we do not run ourselves.

UBUBU (paulindani/UBUBU): gradients of all rows for each effective sample of the worst coordinate, from its notebooks,
on a GPU; by the standard error of a mean alone, without a bound on its bias and without what the Hessian took.
"""

from __future__ import annotations

UBUBU = {
    "mnist": {"exact": 332.0, "preconditioned": 3.45, "SVRG": 0.83, "quadratic model": 0.19, "predictions": 0.92},
    "football": {"exact": 113.0, "quadratic model": 0.33},
}
LAWS = "exact", "preconditioned", "SVRG", "quadratic model"
