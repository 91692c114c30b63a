"""What families are made of beside a linear predictor.

extras    parameters beside the coefficients: where they live, and their priors
times     densities of times that may be censored
laws      how y scatters, where a mean and a noise do not tell
"""
