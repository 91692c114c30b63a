"""PyMC and bambi models, unchanged: each observed row is a term of the likelihood, all else the prior.

    special   functions that PyTensor has no JAX code for
    graphs    the model's terms as PyTensor has them, what is known worked out, and as JAX functions
    supports  transforms of free variables as constraints
    rows      the terms of one row alone
    terms     which terms are of rows, and which are not
    program   the model, its free variables answered from outside
    sites     free variables, and the plates along which they lie
    model     `from_pymc`: the model and its rows, held against PyMC's own terms
    bambi     `from_bambi`: the same under bambi's names

`from_pymc` and `from_bambi` are all that is for the outside.
"""
