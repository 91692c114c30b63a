"""Plates: what doors make of models whose latent sites lie along groups of rows, whatever package wrote them.

    programs   what a door hands over: a model run on some rows, its sites answered from outside
    effects    latent sites along a plate as a few free numbers of each of its entries
    steps      values along a plate, and one operation run on them
    rules      operations that keep entries apart, for one entry
    entries    a traced function of arrays along a plate, followed for one entry
    forms      the model given one group's effect, or one row's
    groups     plates of groups, recognised and integrated out

Doors stand on it; nothing of it is for the outside.
"""
