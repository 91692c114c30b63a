"""Powers: how far answers move with the power of the prior and of the likelihood.

priors        log densities as functions of u: of every part of the prior, of all of it, and of the Gaussian
gaussian      what is known of covariances under the Gaussian, and draws of the rest
sensitivity   `Sensitivity`: by parameter and by part of the prior, ranked, each number with its error
"""
