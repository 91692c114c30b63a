"""Doors for models and data of other packages, each imported when it is first used.

    numpyro   NumPyro models: `tb.from_numpyro`
    sklearn   scikit-learn estimators: `tb.TallClassifier`, `tb.TallRegressor`, `tb.TallCountRegressor`

Doors import all that was built before them, and not one another; what `tb` names is all that is for the outside.
"""
