"""Smooths: what is asked of fits with s(x).

predictions   of rows, whose linear predictor is not linear in what is drawn
smoothness    the scale of every smooth, and its effective degrees of freedom
"""
