"""Results: what a run hands over, and what people ask of it.

parts          what a result is made of: levels, rates, cost, regression, factors of groups, other modes
questions      what a result is asked, each with an example
result         `Result`
fitted         the rows of a fit, for what is asked of all of them
terms          what the names of coefficients say, and which of them stand alone
coefficients   mean, sd and interval of every parameter, each number with its error
verdict        which numbers are as accurate as was asked, and which are not
comparisons    ratios, and one thing against another
groups         effects of groups, shares of variance, predictions and comparisons with groups
smooths        fits with smooths: predictions, scales and effective degrees of freedom
curves         what a fit says of one column of numbers, point by point
averages       average effects: what changing a column does to the mean response, over all rows
powers         how far answers move with the power of the prior and of the likelihood
new_rows       what a prediction reads of them, their numbers, and those that cannot be predicted
predictions    new rows in the terms of the fit, in memory or from file to file
export         data frames, and the labelled arrays that ArviZ reads
result_file    one file, exact to the bit
run_folder     the folder of a run of the command line: question, answer, ledger

All of them may be used from outside. A `Result` imports what it answers with only when it is asked.
"""
