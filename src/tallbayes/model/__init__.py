"""The model: what is asked."""
