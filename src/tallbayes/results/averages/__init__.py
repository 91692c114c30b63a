"""Average effects: what changing one column does to the mean response, on average over the rows of a table.

sides      rows with a column changed, twice, batch by batch, as a family's predictor reads them
sums       one pass: averages at the centre with their slopes and bends, and a sample of rows
noise      what is unknown of an average given theta: the effects of groups
ensemble   averages at the points of the posterior, and what they say with their errors
kinds      what of a row is averaged where it is no one predictor: effects of groups, classes, one's own functions
units      rows by their groups, in memory that does not grow with them
totals     one pass over units, with slopes, and a sample of them for what is beyond
asking     a formula's or a family's kind and rows
own_sides  the same of a model of one's own
targets    averages by level and output, at the points of the posterior
answers    `AverageEffect`, `AverageEffects`: the door
"""
