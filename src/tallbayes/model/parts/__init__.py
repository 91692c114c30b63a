"""What families are made of beside a linear predictor.

extras    parameters beside the coefficients: where they live, and their priors
times     densities of times that may be censored
making    a density, its extras and its priors as a `Model`
laws      how y scatters, where a mean and a noise do not tell
"""
