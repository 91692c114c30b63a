"""Records: what was computed, on disk."""
