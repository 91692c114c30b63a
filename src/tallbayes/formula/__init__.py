"""The formula door: from a formula and a table to a result in the table's own units.

expressions     formulas as text: two sides, and nothing but functions of a row in them
coding          the columns that the terms make, learnt from all rows and applied block by block
functions       what formulas know beside formulaic's own, by the names of other packages
smooths         s(x): curves whose smoothness is learnt
groups          terms with bars, (1 + x | g): of every row its group, and the effects that groups have
response        the left side as the numbers of a family
collinearity    columns that are combinations of others, whatever the number of levels
standardising   columns of numbers about their means, in units of their spreads
encoding        what a fit remembers of its formula, for new rows
design_steps    what is asked of a design, and the steps that both of its ends share
transforms      calls that remember, and the sums they are learnt from
second          a formula of a parameter beside the coefficients, such as sigma ~ z
survey          a coding from the rows of a table on disk, of which only a part is held
design_folder   designs on disk, to be found again
streaming       the design of a table on disk
design          `build_design`: in memory, or where the table is
priors          priors by the names that a result reports
units           coefficients in the units of the table
fit             `fit`: the door itself
again           a run's table read again in another process

From outside: `fit` and its tables of families, and `Encoding`, by which predictions make the columns of new rows.
"""
