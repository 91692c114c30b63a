"""Sections of a report that appear where they are asked for.

answers       leave-one-out, evidences, ranks, average effects
checks        does the fit have responses like the one that was seen?
sensitivity   which priors matter
"""
