"""The posterior as a signed ensemble."""
