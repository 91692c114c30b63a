"""What a reader sees first: what the rows show, and what the fit makes of it, as pictures and in words.

rates       base rates: the response that was seen, of all rows and by the levels of categories
observed    observed against predicted, by tenths of the rows
averages    what changing one column does to the mean response, on average
curves      squares, splines and smooths of a column as one curve, in place of their coefficients
at_hand     whether the rows of the fit are, and are few enough to be looked at without being asked
"""
