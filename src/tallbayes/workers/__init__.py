"""Workers: whoever runs blocks of paths."""
