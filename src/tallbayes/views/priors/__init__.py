"""Views of priors by themselves.

predictive    what a prior believes before a fit, as text, HTML and a picture
"""
