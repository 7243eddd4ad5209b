"""One process of several leads: the election in etcd, its thread, its port for metrics and probes.

The autoscaler and the operator stand on it. Any number of processes stand by; every write of the
one that leads is a transaction that holds only while its election stands.
"""
