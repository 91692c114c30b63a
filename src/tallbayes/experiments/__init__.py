"""The paper's experiments, one module a figure: settings, results as JSON, a figure, and claims with verdicts."""
