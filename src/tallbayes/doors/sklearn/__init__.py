"""scikit-learn estimators: `fit` is `tb.estimate` on standardised columns, reported in the columns' own units.

    matrices     columns standardised and widened for a fit, and its result read back for the columns as they were
    groups       a column of X that names the group of every row
    estimator    what all estimators share: parameters, checked rows, the fit, and where its numbers go
    estimators   `TallClassifier`, `TallRegressor`, `TallCountRegressor`, one by kind of response

The three estimators, and `expected_failed_checks` for scikit-learn's own, are all that is for the outside.
"""

from tallbayes.errors import require_extra

require_extra("sklearn", "sklearn", "tb.TallClassifier, tb.TallRegressor and tb.TallCountRegressor")
