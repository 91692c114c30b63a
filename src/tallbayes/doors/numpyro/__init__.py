"""NumPyro models."""
