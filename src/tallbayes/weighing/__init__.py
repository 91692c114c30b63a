"""Weighing: small tables answered by importance weights about a Gaussian in balance, in NumPy.

regression    a family's log posterior at many points, and what a row does on average over a Gaussian
balance       the Gaussian that is right on average, by Newton's steps on averages
adaptation    mean and covariance of a posterior, by draws with weights about its mode
proposal      draws from Student's t about a Gaussian, and its densities
weights       draws with weights: what they say of a function, and whether they can be trusted
rounds        draws until every quantity meets its tolerance
replicates    unbiased answers, one a pair of chains that meet
"""
