"""The command line, `tallbayes` and `python -m tallbayes`.

cli         how a command is read, and how it ends
options     what may be asked: commands, options, help
commands    fit, resume, show, predict, report
effects     the effects of all groups of a run
evidence    the log marginal likelihood of a run
ingest      files into a table on disk
reproduce   the paper's experiments
"""
