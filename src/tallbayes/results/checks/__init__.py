"""Predictive checks: responses as the fit would have them, beside those that were seen.

batches        rows with what a response hangs on: of the fit itself, or given
responses      a response of every family, given theta and effects
own_rows       rows of a model of one's own, in parts
own_responses  the same by the function of a model of one's own
simulation     `Simulation`: replicated responses, a batch of rows at a time
statistics     sums over rows, and what is made of them
check          `Check`, and the door
before         `PriorPredictive`: what the prior believes before a fit
"""
