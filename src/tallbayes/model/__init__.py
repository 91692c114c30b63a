"""The model: what is asked.

    constraints   bijectors between the space of a parameter and R^k
    space         a flat vector u in R^d seen as the pytree theta
    linear        where heads, intercept and extras of a regression stand in theta
    model         Model, as its owner writes it; Target, the same on flat vectors
    weights       rows that stand for several
    observables   what is read off a point of the posterior
    catalogue     one record a family: response, link, extra, and the words for it; needs no JAX
    responses     what y may be, and what to say where it is not
    densities     log p(y | eta) of one row
    normalisers   what these leave out, numbers of the data alone
    noise         how y scatters about its mean: variance and CDF; needs no JAX
    parts         extras, censored times, laws: what families have beside a linear predictor
    families      the models of `tb.families`, made of the above
    links         what a family predicts, and its integrals
    priors        laws of single numbers by name, tb.priors, and which parameter has which
    smooths       coefficients that share a scale, which is learnt
    groups        Groups, effects by group that are integrated out
    mixed         families with effects by group

A new family is a record in `catalogue`, a density, and a function in `families` that puts the two together. All that
has no underscore may be used from outside.
"""
