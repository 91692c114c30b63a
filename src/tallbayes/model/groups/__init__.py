"""Groups in a model: effects that every group of rows has of its own.

matrices   of up to three rows, written out
integral   Groups, as its owner writes them; the integral over an effect at nodes that are fixed
linear     the same in closed form, for normal noise
mixed      families with effects by group, their scales and correlations
"""
