"""Views of a result: for a terminal, a notebook, other programs, and people who have not run anything.

numbers       the one rounding
advice        what to do next, in the words of the door that a run came through
headline      in a line what was met and what was not
tables        the one set of rows and columns, in cells that know their number
text          quantities, levels, cost, status
groups        effects of groups, and shares of variance
averages      average effects
sensitivity   what hangs on the prior
priors        what a prior believes before a fit
leaving_out   leave-one-out, and ranks of several results
evidence      an evidence in a few lines
summary       the answer in brief
document      one JSON document
notebook      small HTML tables
plots         intervals beside one another
report        one page that needs nothing else
"""
