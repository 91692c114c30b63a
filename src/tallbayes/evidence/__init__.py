"""Evidence: the log marginal likelihood of what was fitted, with an interval.

densities    the log posterior at many points by one reading of the rows
constants    what log densities and priors leave out; priors that have no constant are refused
estimate     from weights to a log mean, with its errors
gaussians    what draws are made about, and Laplace's at the mode
integration  draws until the tolerance is met
evidence     `Evidence`
marginal     from a result to its evidence

`Result.evidence` and the command line use `marginal` and `evidence`.
"""
