"""The command line, `tallbayes` and `python -m tallbayes`.

cli            how a command is read, and how it ends
grammar        how a command is written down
afterwards     commands for a run that is there
options        what may be asked: commands, options, help
commands       fit, resume, show, predict, report
effects        the effects of all groups of a run
answers        the evidence, which answers hang on the prior, average effects, and curves
priors         --prior, and what the priors believe before a fit
arrivals       rows that come to a run, are taken out of it, or are watched for
days_on_disk   a run on a table on disk, from the standing of its last day; runs with all their rows
draws          draws of the parameters, and of responses
leave_one_out  loo and rank
ingest         files into a table on disk
reproduce      the paper's experiments
"""
