"""A page in the browser about a cluster, the runs of this machine, or runs that are over.

One small process reads the records in etcd (or in a run's archive), asks the agents for the
progress of their ranks, and sends changes to every open page. This package itself changes no job;
it passes the actions of a page to a function of its caller.
"""
