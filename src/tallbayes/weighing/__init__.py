"""Weighing: small tables answered by importance weights about a Gaussian in balance, in NumPy.

regression    a family's log posterior at many points, and what a row does on average over a Gaussian
balance       the Gaussian that is right on average, by Newton's steps on averages
adaptation    the Gaussian of the posterior's own moments, by a few draws with weights
proposal      draws from Student's t about a Gaussian, and its densities
bending       the same where the rest is narrow or wide as the scales of effects are
excess        the same of a regression, by its overdispersion
scales        the same of a model, whose scales are known by name
weights       draws with weights: what they say of a function, and whether they can be trusted
rounds        draws until every quantity meets its tolerance
replicates    unbiased answers, one a pair of chains that meet
"""
