"""Priors in a formula: by the names that its result reports, in the units of the table.

stated      from names of columns, terms, scales and correlations to priors of theta
predictive  `tb.prior_predictive`: parameters and responses before a fit
words       what is said of priors beside every result
"""
