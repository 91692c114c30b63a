"""The estimator: above the waist, without JAX."""
