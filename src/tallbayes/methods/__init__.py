"""Methods: how levels are planned, tuned and run."""
