"""Adapters: data and models as other packages hold them; each package is imported only where it is needed."""
