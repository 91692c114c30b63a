"""Average effects: what changing one column does to the mean response, on average over the rows of a table.

sides      rows with a column changed, twice, batch by batch, as a family's predictor reads them
sums       one pass: averages at the centre with their slopes and bends, and a sample of rows
ensemble   averages at the points of the posterior, and what they say with their errors
answers    `AverageEffect`, `AverageEffects`: the door
"""
