"""The estimator: above the waist, NumPy and plain Python. It knows no gradient, and no import here reaches JAX.

levels        the waist: what is asked of a ladder of levels, and how its blocks are kept on record
ladder        step sizes and path lengths of all levels, and how paths move
estimates     a number with its errors; how a run ended
estimands     from moments of levels to what was asked for, and the RMSE allowed for it
allocation    N_l, the error of a sum of levels, the bias that is left
rates         alpha, beta, gamma, contraction, and whether levels telescope
tails         a variance that no sample can hide
decisions     what tuning has settled
tuning        h_0, n, T and windows by short pilots
run           levels that only grow, and what they say at one moment
foresight     what a run is likely to take, by all that has arrived, for workers that are idle
adaptive      pilots, allocation, bias, and when to stop
randomised    fixed low levels and a random tail: unbiased
made_up       levels whose law is chosen, to study all of this without a path
"""
