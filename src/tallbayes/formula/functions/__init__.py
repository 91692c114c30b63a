"""The functions that a formula knows beside formulaic's own.

names        NumPy's by the names of Python and of R, and what is written otherwise here
evaluation   what formulaic makes of terms, some rows at a time
splines      the splines of patsy, of R and of mgcv, beside an intercept too
"""
