"""Doors for models and data of other packages."""
