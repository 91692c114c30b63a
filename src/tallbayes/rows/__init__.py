"""The rows: one table, in memory or on disk, and all that they come from.

table        rows in memory: checked, padded, placed on the device
statistics   least, largest, mean, spread and covariance of columns that come in blocks; what float32 holds
atomic       files and folders that appear whole or not at all
on_disk      tables on disk: opened, verified, mapped, sealed
listing      which row stands at each place that batches are read from
shuffling    rows in random order, in bounded memory
unfinished   a table in the making: its folder, its lock, its journals
writing      `write_table`: chunks of arrays into a table on disk
columns      Arrow's columns as numbers and codes, and what is missing among them
formats      CSV, Parquet and Arrow files, one record each
packing      between Arrow's columns and packed rows, both ways
sources      anything that rows come from, whole or in batches
files        which files are meant, and whether their columns agree
ingest       `ingest`: any number of files into a table on disk
segments     tables on disk that grow and shrink: a package of its own

Those who sample read table, on_disk and listing; formulas read sources, columns and statistics.
"""
