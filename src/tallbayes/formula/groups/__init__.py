"""Groups in a formula, (1 + x | g): from its text to the arrays of a mixed model.

terms    the bars of a formula, taken out of its text
levels   which groups there are, and which one a row is of
design   the effects of every row, in the units of the columns of the formula, and the same of new rows
factors  what is known of every factor, and the effects of those that are not integrated out
fit      where a formula with groups ends
"""
