"""The sampler: below the waist, pure JAX. It knows no tolerance, and implements `estimator.levels.Levels`.

roles         what a sampling law, a gradient, a dynamics and a coupling must have
randomness    words into normals and integers
minibatch     laws of n rows out of N
draws         noise and batches of a stretch of steps, drawn first
inputs        what all paths of a run share
gradients     five estimators in one equation
dynamics      one step, with its noise as an argument
kinetic       one of paths with a velocity
couplings     which batches coarse paths see
windows       means over the last points of paths
control       what is taken off a sample in first order, and its exact mean
paths         one sample of a level, for every combination of these
pairs         two paths that start apart
levels        blocks of 32 samples, compiled
"""
