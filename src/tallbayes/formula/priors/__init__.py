"""Priors in a formula: by the names that its result reports, in the units of the table.

stated      from names of columns, terms, scales and correlations to priors of theta
words       what is said of priors beside every result
"""
