"""Groups: effects that every group has of its own, integrated out, so that a group is a row.

bundling   which groups a unit is of, and where their rows stand
units      rows put together by their group: what paths read
gathering  the same of rows on disk, in memory that does not grow with them
nodes      where a group's integral is looked at: mode, spread and drift of its effect
centre     the mode of the marginal posterior, with nodes that follow
integral   how many nodes, and what is left of the integral's error
known      the groups of a fit, looked up by what their column holds
placing    from rows to units that are ready to be sampled

The integral itself, and what is known of an effect given theta, are in `model.groups.integral`.
"""
