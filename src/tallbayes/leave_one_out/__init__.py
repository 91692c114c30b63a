"""Leave-one-out: how well a model foretells each row from all the others, without fitting it again.

    cavity        every row's answer by the Gaussian without that row: one pass
    rows          which row stands where, some rows by themselves, and what all of them count in own units
    weighing      log posterior weights of draws: of all rows, or of some beside their expansion
    certificate   what is wrong with the Gaussian's answer, by paired weights, and its errors
    within        rows of a mixed model, each given the others of its group
    own_nodes     nodes of groups without one of their rows, and what nodes leave of the number
    centring      the Gaussian that draws are made about, where the fit's own will not do
    relocation    draws about the Gaussian without one row, where weights of all rows are too heavy
    answer        every row, some of them certified, and the errors of the sum
    loo           `result.loo()`
    ranking       several results side by side, `tb.rank`

All that has no underscore may be used from outside.
"""
