"""Smooths: curves whose smoothness is learnt, s(x) in a formula.

basis    the columns of a smooth, and what it remembers
fit      the model of a design that has some: their coefficients share a scale
"""
