"""Draws: independent ones from the posterior, of parameters and of the effects of groups.

rejection   of small tables, exactly: proposals that are taken or not
ends        of tall ones: where fine paths of the finest level end
again       the levels of a run that was read from a file
given       effects of groups, given the parameters
observations   new observations of families with laws of their own, by draws
drawn       `PosteriorDraws`, and the door
"""
