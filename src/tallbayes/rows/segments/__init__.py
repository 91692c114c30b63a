"""Tables on disk that grow and shrink: their rows in segments, as they came.

record       a segment, and what becomes of the records when there are many
checksums    digests of stretches of rows, and which files have been read through
redo         changes that are written down before they are made
behind       new rows behind the last one of a table
conversion   new rows of files in the types and codes that a table has
withdrawal   rows that are taken out
alike        rows told by what they say, and where in a table they stand
past         whether rows that a table had are still there

`on_disk` stands on record, checksums and redo, and the others on it.
"""
