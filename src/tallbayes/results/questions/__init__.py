"""Questions: the methods of a `Result`, each with an example. How they are answered is imported when they are asked.

parameters   each of them, two of them, a column's curve, groups' effects, draws
rows         predictions, average effects, replicated responses and checks
fits         leave-one-out, evidence, power of the prior
arriving     rows that come after the fit, and rows that are taken back
showing      as text, a page, a picture, a data frame, a file

They are lists of methods without a state, which `Result` inherits: one class would not fit into one file.
"""
