"""Anchors of thousands of parameters, with the matrix of their second derivatives.

curvature   the Hessian of a regression by blocks of products, and its products with vectors
chains      whether parameters that stand in time have a Hessian of blocks in a row, and which
lines       the few lines along which a Hessian is not its diagonal, from a sketch of its products
lbfgs       climbs without a matrix: gradients and one diagonal
climb       the mode by conjugate gradients: a Hessian of a sample of the rows, and products with that of all
means       what it takes, said before it begins
"""
