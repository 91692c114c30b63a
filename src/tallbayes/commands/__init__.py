"""The command line, `tallbayes` and `python -m tallbayes`.

cli            how a command is read, and how it ends
grammar        how a command is written down
afterwards     commands for a run that is there
options        what may be asked: commands, options, help
commands       fit, resume, show, predict, report
effects        the effects of all groups of a run
answers        which answers hang on the prior, average effects, and curves
priors         --prior, and what the priors believe before a fit
arrivals       rows that come to a run, are taken out of it, or are watched for
draws          draws of the parameters, and of responses
evidence       the log marginal likelihood of a run
leave_one_out  loo and rank
ingest         files into a table on disk
reproduce      the paper's experiments
"""
