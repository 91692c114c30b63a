"""Set-up: from checked rows to the point about which all paths run. Done once, and recorded as a whole.

own_rows        a model of rows as their owner names them, on rows as they lie on disk
quantities      from what was asked for to the observables of a path, and their scale
resolution      whether float32 tells their values apart
preparation     rows checked and placed, the mode found or verified, rows listed, tails probed
guide           a control of paths whose means are drawn
tail_variances  what a probe says of every component of the answer
record          set-up from a ledger, or into it
corners         whether a prior has a kink within the posterior, and what to say then
known           what is known of a run so far
balancing       whether the anchor is put in balance
centre          mode, other modes, recentring: the walk through `anchor`
"""
