"""Doors for models and data of other packages, each imported when it is first used.

    plates    groups of rows in models of other packages, recognised and integrated out
    numpyro   NumPyro models: `tb.from_numpyro`
    pymc      PyMC and bambi models: `tb.from_pymc`, `tb.from_bambi`
    sklearn   scikit-learn estimators: `tb.TallClassifier`, `tb.TallRegressor`, `tb.TallCountRegressor`

Doors import all that was built before them and `plates`, and not one another; what `tb` names is all that is for the
outside.
"""
