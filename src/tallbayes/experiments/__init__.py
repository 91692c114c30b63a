"""The paper's experiments, one module a figure: settings, results as JSON, a figure, and claims with verdicts.

problem         the paper's data and model, and the reference by quadrature
runs            many runs of the multilevel estimator on one problem
store           measurements that are done once, in one JSON file a figure
claims          what the paper says and what was measured
style           how figures look
coupled_paths   figures 1 and 2a: coupled paths contract
decay           figures 2b, 2c: means and variances by level
accuracy        figure 3a: error against epochs, beside MALA
scaling         figure 3b: cost against the number of rows
slopes          the abstract: RMSE against cost, beside SGLD
page            all of them on one page
reproduce       `tallbayes reproduce`: what is missing is run, then all is drawn

Studies take `store` and `style` from here, and the command line `reproduce`.
"""
