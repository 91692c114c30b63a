"""Shrinkage: posteriors under priors whose scales no Gaussian is near, by chains on a Gaussian likelihood and weights.

slices       one move of many numbers at once, each by its own density
scales       laws of the variances of coefficients, and moves that leave their posterior
laws         from a prior, as its owner wrote it, to such a law
site         the Gaussian in place of the likelihood
chains       independent chains, side by side
assessment   values and errors of what they and the weights say
rounds       more of either until every answer is met
"""
