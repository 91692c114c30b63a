"""Priors of single numbers, by name: what their owner states, and what a model of them is made of.

laws       standard laws: log density, its derivatives, constant, tails and draws, a record each
prior      Prior: a law with a centre and a scale, and the words for it
named      tb.priors: normal, student_t, laplace, ...; and the same read from text
assigned   Priors: which parameters of a model have which
plain      the same along a flat vector, in NumPy, with derivatives
shrinkage  of many coefficients together, near zero but for a few: horseshoes and R2D2
"""
