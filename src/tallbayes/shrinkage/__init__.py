"""Shrinkage."""
