"""The command line, `tallbayes` and `python -m tallbayes`.

cli         the words: commands, options, help
commands    fit, resume, show, predict, report
ingest      files into a table on disk
"""
