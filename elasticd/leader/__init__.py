"""One process of several leads: the election in etcd, its thread, its port for metrics and probes.

The autoscaler and the operator use it. Any number of processes stand by. Every write of the leader
is a transaction that holds only while its election stands.
"""
