"""A page in the browser about a cluster, the runs of this machine, or runs that are over.

One small process reads what stands in etcd (or in a run's archive), asks the agents how far their
ranks are, and sends what changed to every open page. It changes nothing anywhere.
"""
