"""The anchor: the Gaussian that stands in for the posterior."""
