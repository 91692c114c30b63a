"""Gaussians: what can stand for the precision H, and how a root of its inverse is applied without being written out.

whitening   the role, and its values for a matrix and for a diagonal
arrowhead   a diagonal with a few dense rows beside it, as a category of many levels has; and its whitening
chain       blocks in time, each with links to the next one alone; and its whitening
low_rank    a diagonal and a few lines beside it, from a sketch of products; and its whitening
roots       roots of matrices of thousands of rows, in place
extremes    the ends of a spectrum, from products
quadrature  Gaussian integrals in one dimension
pytrees     all of them as arguments of compiled programs
"""
