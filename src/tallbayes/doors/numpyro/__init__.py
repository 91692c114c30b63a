"""NumPyro models, unchanged: the sites inside the data plate are the likelihood of a row, all others the prior.

    arguments   arguments of a call, told apart: arrays of rows, and what is the same for every row
    supports    the supports of distributions as constraints
    programs    a model run on some rows, its sites and plates answered from outside
    responses   the observed site of a row, drawn from its distribution, or what that expects
    row_effects latent sites of the rows, each row a group of its own
    model       `from_numpyro`: the model and its rows, checked to be a sum over rows

`from_numpyro` is all that is for the outside.
"""
