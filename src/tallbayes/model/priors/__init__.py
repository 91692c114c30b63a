"""Priors: what is believed of coefficients before the rows are read; `tb.priors`.

shrinkage   many coefficients near zero and few that are not: horseshoes and R2D2
"""

from tallbayes.model.priors.shrinkage import horseshoe, r2d2, regularised_horseshoe

__all__ = ["horseshoe", "r2d2", "regularised_horseshoe"]
