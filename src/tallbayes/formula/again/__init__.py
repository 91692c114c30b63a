"""A run's table read again in another process.

groups   its groups, for predictions
rows     its rows, with the model that was fitted to them
"""
