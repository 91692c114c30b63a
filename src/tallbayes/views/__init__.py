"""Views of a result."""
