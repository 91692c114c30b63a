"""Groups in a result: what is asked of them.

effects       every group's own effect
effect_ends   ends of intervals of effects that are parameters, thousands at once
partition     shares of variance between groups and within
predictions   rows that belong to groups, known and new
comparisons   two groups, or two rows with theirs
"""
