"""Rows of mixed models that arrive: new rows of a group change that group alone.

rows      rows as they came, each with its group
shelves   which unit a group is in, as groups come, grow and go
units     the units of paths, of which some are made anew
standing  all of this as one value, and what a day makes of it
encoded   rows of formulas with bars, encoded as those of the fit
"""
