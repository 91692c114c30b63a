"""Workers: whoever runs tasks, here or elsewhere, in any order and with the same bits.

    tasks         functions of a subject that may say where their results are kept
    executors     any executor, and results in the order in which they were asked for
    lines         the blocks of one level: wanted, under way, handed over
    outlook       what a run is likely to want next, for workers that are idle
    dispatch      blocks issued in one order, arriving in any, handed over in the order of their index
    shipping      tasks for other processes: what is heavy travels once, rows are opened by their path
    sharing       an executor with the rows where its workers can read them

The first five know no JAX; the estimator stands on them.
"""
