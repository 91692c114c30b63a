"""The peers: the same posteriors by other libraries, each set up as its own documentation advises."""
