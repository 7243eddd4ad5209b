"""How long a step takes at each number of nodes: measured where the job has been, fitted elsewhere.

`window` makes one measurement of two progress records, `size` keeps what was measured at each
number of nodes, `spread` says how sure that is, `fit` draws t(n) = a + b/n + c(n-1) through it,
`estimate` reads the curve, `cost` says what a change of size takes. `belief` says what else the
curve may be, and `information_value` what the trial of a size would tell. All of it is pure, and
plain Python: the image of the autoscaler has no numpy.
"""
