"""The seconds of a step at each number of nodes: measured at some sizes, fitted at the others.

`window` makes one measurement of two progress records, `size` keeps the measurements of each number
of nodes, `spread` computes their errors, `fit` fits t(n) = a + b/n + c(n-1) to the sizes,
`estimate` reads the curve, and `cost` has the time of a change of size. `posterior` has other
possible curves with their probabilities, and `information_value` the use of a trial of a size. All
of it is pure, and plain Python: the image of the autoscaler has no numpy.
"""
