"""Groups in a model: effects that every group of rows has of its own.

matrices     of up to three rows, written out
terms        a factor's scales and correlations, and the coordinates of effects that are parameters
reads        the few numbers of u that a unit reads
integral     Groups, as its owner writes them; the integral over an effect at nodes that are fixed
bundles      several groups to a unit, where they are of very different size
linear       the same in closed form, for normal noise
derivatives  of a unit, in what it reads
mixed        families with effects by group
"""
