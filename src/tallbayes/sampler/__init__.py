"""The sampler: below the waist, coupled paths in JAX."""
