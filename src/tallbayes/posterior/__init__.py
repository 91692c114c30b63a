"""The posterior as a signed ensemble: Laplace's Gaussian, and what the paths found beyond it.

telescoping         fine minus what is taken off, and the sum over levels with its errors
coordinates         how what is reported is made of u, as plain numbers; which numbers are lines
reported            the same in JAX, of a model or of what was stored
parameters          their names, and the functions that stand for what is asked about them
projections         the law of a line: probabilities, quantiles, densities
expectations        the expectation of any function, the last noise drawn anew
signed_draws        quantiles of what is no line
posterior           `Posterior`: expectation, quantile, interval, probability, density, draws
prediction          `Prediction`: mean and sd by row, and their errors; `Observation`
prediction_errors   from sums over paths to predictions
predictor           those sums, a block of rows at a time
effects             moments of every group's effect, all groups streamed
observations        how a new observation scatters about a prediction
effects             what is known of the effect of every group, and of the difference of two
group_predictions   predictions of rows that belong to groups, known or new

A run makes a `Posterior`; results and doors ask it, and make a `Predictor` of it. Only `reported`, `expectations`,
`predictor`, `observations`, `effects` and `group_predictions` import JAX, so that a stored posterior opens without.
"""
