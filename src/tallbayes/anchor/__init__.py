"""The anchor: the Gaussian that stands in for the posterior, and what the rows say of it.

anchor          mode and precision as plain numbers
sums            the log likelihood and its derivatives, summed over rows in float64
chunks          sums over a chunk of rows as tasks, a piece at a time
expansion       the log posterior at one point, streamed over all rows on any executor
ascent          climbs with a dense Hessian
wide            climbs without one, and thousands of parameters, of which a matrix is made once
mode            the mode in two or three passes
screening       the density at hundreds of points, and where another mode may be
other_modes     climbs from there, and the heaviest of what they found
balance         the Gaussian that is right on average
recentring      where the mass is far from the mode, or there is none
importance      rows that matter more stand more often in the list that batches are read from
probe, probing  the density where few paths go: as numbers, and how it is looked at
gaussian_level  expectations under the anchor, which cost no data
"""
