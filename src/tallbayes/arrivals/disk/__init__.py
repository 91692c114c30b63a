"""Rows that arrive on disk: a table that was given, and what paths read of it, which grow and shrink together.

tables      both as one value: `arrivals.role`, as `arrivals.memory` is for rows in memory
landing     rows as they were given, put behind those of the table that was given
leaving     a withdrawal, written down before it is made
state       a standing in the folder of a run, a file a day
replay      the answer of a day that has passed, once more
"""
