"""Methods: frozen values that own how their levels are planned, tuned, run and extended.

method        the role, and what all methods share; a new one is a file here and a line in `tallbayes.__init__`
ladders       ladders that nobody has chosen
multilevel    the paper's
attempts      tune, sample, and answer what the pilots could not foresee
anchored      the default: the ladder anchored to a Gaussian
weighted      draws with weights, for small tables; the default tries it first
randomised    unbiased, over the levels of another method
"""
