"""Tables after a fit: a run's own read again in another process, and rows that arrive.

groups    its groups, for predictions
rows      its rows, with the model that was fitted to them
arriving  rows that came after it, encoded as its own
"""
