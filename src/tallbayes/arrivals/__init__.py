"""Arrivals: rows that come later, and rows that are taken back, at a cost that does not know how many there are.

order      a list of rows in random order that hangs on what they say alone, not on when they came
role       what rows are to those who carry them from day to day
memory     tables that grow in place, and shrink
disk       the same for tables on disk, and what a run keeps of its days: a package of its own
centre     the anchor as sums over rows, to which those of a day are added
groups     the same for mixed models, whose rows go by groups: a package of its own
sizes      how far single rows can push, and how often they are listed for it
standing   all of this as one value, and what a day makes of it
levels     room for categories that were not there before
days       a day's answer: rows into the standing, and the walk from there
foretold   what a fit says of rows before it has seen them
history    the answers of all days, one beside the other
picture    of them
doors      what `Result.update` and `Result.without` do, for rows as they were given
"""
