"""The door of `tb.estimate`: a question, checked once, and the walk to its result.

question       what was asked, and what may be changed when it is asked again
estimate       the door itself; a result whatever time there is
walk           check, place, set up, plan, run: every package is entered once, in order
interval_ends  more samples, for the ends of intervals
conclusion     from a finished run to the result
group_effects  the effects of a run's groups, found when first asked for
extension      the same walk with a known start
outline        what is known where a run had to end before its first paths
mode_answers   the same question at the other modes
small          small tables of families at once, by weights, without a compiler
shrunk         shrinkage priors of families, by chains and weights
shrunk_result  from these to the result
weighed_rows   draws with weights of any model, on whoever runs the tasks
weighed        from draws with weights to the result
"""
